/* Arguments that no program means: NULL, sizes beyond any memory, addresses within objects and outside of the state, structures that are not aligned or of no length. Each is refused with a
 * documented error, or has a documented meaning. Beside single ones, some that are drawn at random: nothing crashes, and an object that is not among them stays as it was.
 *   durable_arguments DIRECTORY SEED TURNS */
#include "durable.h"

#include <limits.h>

enum { KEPT = 3000 };

static const char *directory;
static unsigned char *kept;
static uint64_t seed, turns;

static uint64_t drawn(uint64_t below) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
}

static int init(spandrel_durable *state, void *argument) {
    (void)argument;
    kept = spandrel_durable_malloc(state, KEPT);
    CHECK(kept && spandrel_durable_memset(state, kept, 0x5a, KEPT) == 0);
    return spandrel_durable_set_root(state, "kept", kept);
}

static void is_as_it_was(void) {
    for (int at = 0; at < KEPT; at++) CHECK(kept[at] == 0x5a);
}

static int nothing(spandrel_durable *state, void *argument) {
    (void)state, (void)argument;
    return 5;
}

static const size_t sizes[] = {0, 1, 7, 8, 15, 16, 100, 4095, 4096, 100000, (size_t)1 << 40, (size_t)1 << 47, (size_t)1 << 63, SIZE_MAX / 2, SIZE_MAX - 4096, SIZE_MAX - 15, SIZE_MAX - 1, SIZE_MAX};
enum { SIZES = sizeof sizes / sizeof *sizes, MODEST = 10 };

/* An address that is none of an object's beginning. */
static char *wrong(spandrel_durable *state) {
    static char outside[64];
    char *base = spandrel_durable_base(state), *end = base + spandrel_durable_bytes(state);
    char *const all[] = {outside, outside + 1, base, base + 1, base - 1, end, end - 1, end + 1, (char *)kept + 1, (char *)kept + 8, (char *)1, (char *)8, (char *)(SIZE_MAX - 7), (char *)SIZE_MAX, (char *)((uintptr_t)1 << 47), (char *)((uintptr_t)1 << 63)};
    return all[drawn(sizeof all / sizeof *all)];
}

/* Calls of a command that writes. */
static int calls(spandrel_durable *state, void *argument) {
    (void)argument;
    FAILS(EINVAL, !spandrel_durable_malloc(NULL, 1) && !spandrel_durable_calloc(NULL, 1, 1) && !spandrel_durable_aligned_alloc(NULL, 16, 1));
    FAILS(EINVAL, !spandrel_durable_realloc(NULL, kept, 1));
    FAILS(EINVAL, spandrel_durable_free(NULL, kept) == -1);
    FAILS(EINVAL, spandrel_durable_usable_size(NULL, kept) == 0);
    FAILS(EINVAL, spandrel_durable_wrote(NULL, kept, 1) == -1);
    FAILS(EINVAL, spandrel_durable_store(NULL, kept, &state, 1) == -1);
    FAILS(EINVAL, spandrel_durable_memset(NULL, kept, 0, 1) == -1);
    FAILS(EINVAL, spandrel_durable_set_root(NULL, "a", kept) == -1);
    FAILS(EINVAL, spandrel_durable_remove_root(NULL, "a") == -1);
    FAILS(EINVAL, spandrel_durable_remove_root(state, NULL) == -1);
    FAILS(EINVAL, !spandrel_durable_root(state, NULL));
    FAILS(EINVAL, !spandrel_durable_root(state, "\xff\xfe"));
    FAILS(EINVAL, spandrel_durable_set_root(state, "\xff\xfe", kept) == -1);
    FAILS(EINVAL, spandrel_durable_set_root(state, "", kept) == -1);
    FAILS(EINVAL, !spandrel_durable_calloc(state, SIZE_MAX, SIZE_MAX));
    FAILS(EINVAL, !spandrel_durable_aligned_alloc(state, 0, 1));
    FAILS(EINVAL, !spandrel_durable_aligned_alloc(state, SIZE_MAX, 1));
    FAILS(EINVAL, !spandrel_durable_aligned_alloc(state, (size_t)1 << 63, 1));
    FAILS(EINVAL, !spandrel_durable_aligned_alloc(state, 1 << 17, 1));
    FAILS(EINVAL, !spandrel_durable_realloc(state, kept, SIZE_MAX));
    FAILS(EFAULT, spandrel_durable_wrote(state, kept, SIZE_MAX) == -1);
    FAILS(EFAULT, spandrel_durable_wrote(state, NULL, 1) == -1);
    FAILS(EFAULT, spandrel_durable_memset(state, kept, 0, SIZE_MAX) == -1);
    FAILS(EFAULT, spandrel_durable_store(state, kept, kept, SIZE_MAX) == -1);
    FAILS(EFAULT, spandrel_durable_store(state, NULL, kept, 1) == -1);
    FAILS(EFAULT, spandrel_durable_usable_size(state, kept + 1) == 0);
    CHECK(spandrel_durable_store(state, kept, NULL, 0) == 0 && spandrel_durable_free(state, NULL) == 0);
    CHECK(spandrel_durable_outside(NULL, NULL) == -1 && errno == EINVAL);
    /* No object of nothing is another one's. */
    char *none = spandrel_durable_malloc(state, 0), *other = spandrel_durable_calloc(state, 0, SIZE_MAX);
    CHECK(none && other && none != other);
    CHECK(spandrel_durable_free(state, none) == 0 && spandrel_durable_free(state, other) == 0);
    FAILS(EFAULT, spandrel_durable_free(state, none) == -1);
    for (uint64_t turn = 0; turn < turns; turn++) {
        size_t size = sizes[drawn(SIZES)], count = sizes[drawn(SIZES)], modest = sizes[drawn(MODEST)];
        char *object = NULL, *address = wrong(state);
        switch (drawn(10)) {
        case 0: object = spandrel_durable_malloc(state, size); break;
        case 1: object = spandrel_durable_calloc(state, count, size); break;
        case 2: object = spandrel_durable_aligned_alloc(state, count, modest); break;
        case 3: CHECK(!spandrel_durable_realloc(state, address, size) || size == 0); break;
        case 4: CHECK(spandrel_durable_free(state, address) == -1 && errno == EFAULT); break;
        case 5: CHECK(spandrel_durable_usable_size(state, address) == 0 && errno == EFAULT); break;
        case 6: CHECK(spandrel_durable_set_root(state, "wrong", address) == -1 && errno == EFAULT); break;
        case 7: spandrel_durable_wrote(state, address, size); break;
        case 8: CHECK(size <= 100000 || spandrel_durable_memset(state, kept + 1, 7, size) == -1); break;
        default:
            object = spandrel_durable_malloc(state, modest);
            CHECK(object && spandrel_durable_memset(state, object, (int)turn, modest) == 0);
            char *moved = spandrel_durable_realloc(state, object, size);
            if (moved || size == 0) object = moved;
        }
        if (object) CHECK(spandrel_durable_free(state, object) == 0);
    }
    return 6;
}

/* Names of roots are used up. */
static int roots(spandrel_durable *state, void *argument) {
    (void)argument;
    char name[40];
    int number = 0;
    do snprintf(name, sizeof name, "root %d", number);
    while (spandrel_durable_set_root(state, name, kept) == 0 && ++number < 1000);
    CHECK(errno == ENOSPC && number < 512);
    return -1;
}

static spandrel_durable *opened(const spandrel_durable_options *options, const char *suffix) {
    char path[4096];
    snprintf(path, sizeof path, "%s%s", directory, suffix);
    return spandrel_durable_open(path, options, NULL, NULL);
}

static void openings(void) {
    FAILS(EINVAL, !spandrel_durable_open(NULL, NULL, NULL, NULL));
    FAILS(ENOENT, !spandrel_durable_open("", NULL, NULL, NULL));
    char *much = malloc(100000);
    CHECK(much);
    memset(much, 'a', 99999);
    much[99999] = 0;
    FAILS(ENAMETOOLONG, !spandrel_durable_open(much, NULL, NULL, NULL));
    free(much);
    const size_t lengths[] = {0, 1, 7, 4097, SIZE_MAX / 2, SIZE_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        spandrel_durable_options options = durable_options();
        options.struct_size = lengths[i];
        FAILS(EINVAL, !opened(&options, ".never"));
    }
    const int stores[] = {-1, 4, INT_MAX, INT_MIN};
    for (size_t i = 0; i < sizeof stores / sizeof *stores; i++) {
        spandrel_durable_options options = durable_options();
        options.stores = stores[i];
        FAILS(EINVAL, !opened(&options, ".never"));
    }
    const size_t blocks[] = {1, 8, 15, 24, 129, 4096, SIZE_MAX};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        spandrel_durable_options options = durable_options();
        options.block_size = blocks[i];
        FAILS(EINVAL, !opened(&options, ".never"));
    }
    /* More clients than there may be are refused; a limit that is too high or too low is one that is possible. */
    const size_t numbers[] = {1, 1 << 20, SIZE_MAX / 2, SIZE_MAX};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        spandrel_durable_options options = durable_options();
        options.clients = numbers[i];
        options.limit = numbers[i];
        char suffix[32];
        snprintf(suffix, sizeof suffix, ".numbers%zu", i);
        if (numbers[i] > 1024) {
            FAILS(EINVAL, !opened(&options, suffix));
            options.clients = 1024;
        }
        errno = 0;
        spandrel_durable *db = opened(&options, suffix);
        if (!db) {
            CHECK(errno == EADDRINUSE && numbers[i] > 1 << 20);
            options.limit = 0;
            db = opened(&options, suffix);
        }
        CHECK(db && spandrel_durable_write(db, nothing, NULL) == 5 && spandrel_durable_close(db) == 0);
    }
    /* No disk has room for such a log. */
    const uint64_t logs[] = {1, (uint64_t)1 << 62, UINT64_MAX};
    for (size_t i = 0; i < sizeof logs / sizeof *logs; i++) {
        spandrel_durable_options options = durable_options();
        options.log_size = logs[i];
        errno = 0;
        spandrel_durable *db = opened(&options, ".log");
        CHECK(db ? spandrel_durable_close(db) == 0 : errno != 0 && spandrel_durable_error_text()[0]);
    }
    /* Not aligned. */
    char room[sizeof(spandrel_durable_options) + 1];
    spandrel_durable_options options = durable_options();
    options.layout = 9;
    memcpy(room + 1, &options, sizeof options);
    void *unaligned = room + 1;
    spandrel_durable *db = opened(unaligned, ".unaligned");
    CHECK(db && spandrel_durable_close(db) == 0);
}

static void of_no_state(void) {
    spandrel_durable_report report = {.struct_size = sizeof report};
    spandrel_durable_figures figures = {.struct_size = sizeof figures};
    FAILS(EINVAL, spandrel_durable_close(NULL) == -1);
    FAILS(EINVAL, spandrel_durable_read(NULL, nothing, NULL) == -1);
    FAILS(EINVAL, spandrel_durable_write(NULL, nothing, NULL) == -1);
    FAILS(EINVAL, spandrel_durable_copy(NULL, directory) == -1);
    FAILS(EINVAL, !spandrel_durable_root(NULL, "a"));
    FAILS(EINVAL, spandrel_durable_get_report(NULL, &report) == -1);
    FAILS(EINVAL, spandrel_durable_get_figures(NULL, &figures) == -1);
    FAILS(EINVAL, !spandrel_durable_medium(NULL));
    FAILS(EINVAL, !spandrel_durable_base(NULL));
    FAILS(EINVAL, spandrel_durable_bytes(NULL) == 0);
    FAILS(EINVAL, spandrel_durable_outside(NULL, NULL) == -1);
}

static bool is_read_only(void *client) {
    (void)client;
    return true;
}

static void process(void *client) {
    (void)client;
}

/* What belongs to a program whose own memory is the state, in one that has none. */
static void of_no_program(void) {
    spandrel_durable_callbacks callbacks;
    memset(&callbacks, 0, sizeof callbacks);
    FAILS(EINVAL, spandrel_durable_start(NULL) == -1);
    FAILS(EINVAL, spandrel_durable_start(&callbacks) == -1);
    callbacks.struct_size = SIZE_MAX;
    FAILS(EINVAL, spandrel_durable_start(&callbacks) == -1);
    callbacks.struct_size = sizeof callbacks;
    FAILS(EINVAL, spandrel_durable_start(&callbacks) == -1);
    callbacks.is_read_only = is_read_only;
    FAILS(EINVAL, spandrel_durable_start(&callbacks) == -1);
    callbacks.process = process;
    FAILS(EINVAL, spandrel_durable_start(&callbacks) == -1);
    CHECK(strstr(spandrel_durable_error_text(), "no state was loaded"));
    /* Of an older header, which has only what is needed; and of a newer one, with a field that this library does not know. */
    callbacks.struct_size = offsetof(spandrel_durable_callbacks, init_client);
    FAILS(EINVAL, spandrel_durable_start(&callbacks) == -1);
    CHECK(strstr(spandrel_durable_error_text(), "no state was loaded"));
    struct {
        spandrel_durable_callbacks known;
        void *more;
    } later = {.known = callbacks, .more = &callbacks};
    later.known.struct_size = sizeof later;
    FAILS(EINVAL, spandrel_durable_start(&later.known) == -1);
    CHECK(strstr(spandrel_durable_error_text(), "does not have"));
    FAILS(EINVAL, spandrel_durable_serve(NULL, 0) == -1);
    FAILS(EINVAL, spandrel_durable_serve("socket", UINT_MAX) == -1);
    FAILS(EINVAL, spandrel_durable_command_of(NULL) == -1);
    CHECK(!spandrel_durable_default());
    FAILS(EINVAL, spandrel_durable_variable(NULL, 8) == -1);
    FAILS(EINVAL, spandrel_durable_variable(&callbacks, SIZE_MAX) == -1);
    FAILS(EINVAL, spandrel_durable_variable((void *)SIZE_MAX, 1) == -1);
    CHECK(spandrel_durable_variable(NULL, 0) == 0);
}

static void answers(spandrel_durable *db) {
    FAILS(EINVAL, spandrel_durable_read(db, NULL, NULL) == -1);
    FAILS(EINVAL, spandrel_durable_write(db, NULL, NULL) == -1);
    FAILS(EINVAL, spandrel_durable_copy(db, NULL) == -1);
    FAILS(ENOENT, spandrel_durable_copy(db, "") == -1);
    FAILS(EINVAL, spandrel_durable_get_report(db, NULL) == -1);
    FAILS(EINVAL, spandrel_durable_get_figures(db, NULL) == -1);
    const size_t lengths[] = {0, 7, 4097, SIZE_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        spandrel_durable_report report = {.struct_size = lengths[i]};
        spandrel_durable_figures figures = {.struct_size = lengths[i]};
        FAILS(EINVAL, spandrel_durable_get_report(db, &report) == -1);
        FAILS(EINVAL, spandrel_durable_get_figures(db, &figures) == -1);
    }
    /* Longer than the library's, and not aligned: what it does not know becomes zero. */
    char room[200];
    memset(room, 0x77, sizeof room);
    size_t length = 150, created = 0;
    memcpy(room + 3, &length, sizeof length);
    void *unaligned = room + 3;
    CHECK(spandrel_durable_get_report(db, unaligned) == 0);
    int is_new;
    memcpy(&is_new, room + 3 + offsetof(spandrel_durable_report, created), sizeof is_new);
    for (size_t at = sizeof(spandrel_durable_report); at < length; at++) created += (size_t)room[3 + at];
    CHECK(is_new == 1 && created == 0 && room[2] == 0x77 && room[3 + length] == 0x77);
}

int main(int count, char **arguments) {
    CHECK(count == 4);
    directory = arguments[1];
    seed = strtoull(arguments[2], NULL, 10);
    turns = strtoull(arguments[3], NULL, 10);
    openings();
    of_no_state();
    of_no_program();
    spandrel_durable_options options = durable_options();
    options.limit = 64 << 20;
    for (int stores = SPANDREL_DURABLE_STORES_NAMED; stores <= SPANDREL_DURABLE_STORES_PAGES; stores += SPANDREL_DURABLE_STORES_PAGES) {
        options.stores = stores;
        char path[4096];
        snprintf(path, sizeof path, "%s.%d", directory, stores);
        spandrel_durable *db = spandrel_durable_open(path, &options, init, NULL);
        CHECK(db);
        answers(db);
        CHECK(spandrel_durable_write(db, calls, NULL) == 6);
        is_as_it_was();
        FAILS(ECANCELED, spandrel_durable_write(db, roots, NULL) == -1);
        CHECK(spandrel_durable_root(db, "kept") == kept);
        CHECK(spandrel_durable_close(db) == 0);
        db = spandrel_durable_open(path, &options, NULL, NULL);
        CHECK(db && spandrel_durable_root(db, "kept") == kept);
        is_as_it_was();
        CHECK(spandrel_durable_close(db) == 0);
    }
    return 0;
}
