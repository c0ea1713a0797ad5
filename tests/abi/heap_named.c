/* Roots with names and types, set together: an account and its copy.
 *   heap_named PATH fill|open|torn */
#include "heap.h"

enum { LAYOUT = 42, ROUNDS = 1000, NUMBERED = 3 };

typedef struct account {
    uint64_t owner;  /* a name, without pointers */
    uint64_t number; /* looks like a pointer */
} account;

static spandrel_heap *heap;

static void trace_account(const void *object, spandrel_heap_tracer *tracer) {
    const account *at = object;
    spandrel_heap_trace_pointer(tracer, &at->owner, NULL, 32);
}

static const spandrel_heap_root_type types[] = {
    {0, trace_account, sizeof(account), "first", LAYOUT},
    {0, trace_account, sizeof(account), "second", LAYOUT},
    {NUMBERED, trace_account, sizeof(account), NULL, 0},
};

static account *made(uint64_t round) {
    account *new = spandrel_heap_calloc(heap, 1, sizeof *new);
    uint64_t *owner = spandrel_heap_calloc(heap, 1, 32), *decoy = spandrel_heap_calloc(heap, 1, 64);
    CHECK(new && owner && decoy);
    *owner = round;
    *decoy = round;
    new->owner = spandrel_heap_offset(heap, owner);
    new->number = spandrel_heap_offset(heap, decoy);
    return new;
}

static void set(uint64_t round) {
    account *accounts[] = {made(round), made(round), made(round)};
    const spandrel_heap_root roots[] = {
        {"first", 0, accounts[0]}, {"second", 0, accounts[1]}, {NULL, NUMBERED, accounts[2]},
    };
    CHECK(spandrel_heap_set_roots(heap, roots, 3) == 0);
}

static uint64_t round_of(unsigned int index) {
    const account *at = spandrel_heap_get_root(heap, index);
    CHECK(at && at->number);
    return *(uint64_t *)spandrel_heap_at(heap, at->owner);
}

static spandrel_heap_options with_types(void) {
    spandrel_heap_options options = heap_options();
    options.types = types;
    options.type_count = 3;
    return options;
}

static void fill(const char *path) {
    spandrel_heap_options options = with_types();
    options.medium = SPANDREL_HEAP_MAPPED;
    heap = spandrel_heap_start(path, &options);
    CHECK(heap);
    for (uint64_t round = 1; round <= ROUNDS; round++) set(round);
    die();
}

static void refused(void) {
    account *one = made(7);
    spandrel_heap_root roots[64];
    memset(roots, 0, sizeof roots);
    FAILS(EINVAL, spandrel_heap_set_roots(heap, roots, 64) == -1);
    int first = spandrel_heap_named_root(heap, "first");
    CHECK(first >= 0);
    roots[0].name = "first";
    roots[0].object = one;
    roots[1].index = SPANDREL_HEAP_ROOTS;
    FAILS(EINVAL, spandrel_heap_set_roots(heap, roots, 2) == -1);
    roots[1].index = 5;
    roots[1].object = &roots;
    FAILS(EFAULT, spandrel_heap_set_roots(heap, roots, 2) == -1);
    roots[1].object = NULL;
    roots[1].name = "";
    FAILS(EINVAL, spandrel_heap_set_roots(heap, roots, 2) == -1);
    CHECK(round_of((unsigned int)first) == ROUNDS);
    CHECK(spandrel_heap_set_roots(heap, roots, 0) == 0 && spandrel_heap_set_roots(heap, NULL, 0) == 0);
    FAILS(EINVAL, spandrel_heap_set_roots(NULL, roots, 1) == -1);

    spandrel_heap_root_type wrong[] = {types[0], types[2]};
    wrong[0].layout = LAYOUT + 1;
    wrong[1].bytes = 0;
    FAILS(EINVAL, spandrel_heap_set_types(heap, wrong, 2) == -1);
    CHECK(spandrel_heap_named_root(heap, "first") == first); /* none of them was taken */
    /* A type that the heap refuses is not declared, nor are those beside it. */
    FAILS(EPROTOTYPE, spandrel_heap_set_types(heap, wrong, 1) == -1);
    CHECK(strstr(spandrel_heap_error_text(), "layout"));
    wrong[1] = types[2];
    wrong[1].trace = NULL;
    FAILS(EPROTOTYPE, spandrel_heap_set_types(heap, wrong, 2) == -1);
    wrong[0].layout = 0;
    FAILS(EPROTOTYPE, spandrel_heap_set_types(heap, wrong, 1) == -1);
    CHECK(spandrel_heap_named_root(heap, "first") == first);
    spandrel_heap_collected kept = heap_collected();
    CHECK(spandrel_heap_collect(heap, &kept) == 0 && kept.live == 6);
    CHECK(spandrel_heap_set_types(heap, types, 3) == 0);
    wrong[0].name = "a name of more than forty bytes is not one of a root";
    FAILS(EINVAL, spandrel_heap_set_types(heap, wrong, 1) == -1);
}

static void opened(const char *path) {
    spandrel_heap_options options = with_types();
    spandrel_heap_root_type other = types[1];
    other.layout = 1;
    options.types = &other;
    options.type_count = 1;
    FAILS(EPROTOTYPE, !spandrel_heap_open(path, &options));
    options = with_types();
    heap = spandrel_heap_open(path, &options);
    spandrel_heap_collected found = heap_collected();
    /* The accounts and their owners, and no decoy. */
    CHECK(heap && spandrel_heap_recovered(heap, &found) == 1 && found.live == 6);
    int first = spandrel_heap_named_root(heap, "first"), second = spandrel_heap_named_root(heap, "second");
    CHECK(first >= 0 && second >= 0 && first != second);
    CHECK(round_of((unsigned int)first) == ROUNDS && round_of((unsigned int)second) == ROUNDS);
    CHECK(round_of(NUMBERED) == ROUNDS);
    refused();
    CHECK(spandrel_heap_collect(heap, &found) == 0 && found.live == 6);
    CHECK(spandrel_heap_close(heap) == 0);
    /* Who has not said the layout is refused, and who says it needs no more. */
    options = heap_options();
    heap = spandrel_heap_restart(path, &options);
    CHECK(heap);
    FAILS(EPROTOTYPE, spandrel_heap_named_root(heap, "first") == -1);
    CHECK(spandrel_heap_set_types(heap, types, 1) == 0 && spandrel_heap_named_root(heap, "first") == first);
    CHECK(spandrel_heap_close(heap) == 0);
}

/* For ever: who kills it finds the same round everywhere. */
static void torn(const char *path) {
    spandrel_heap_options options = with_types();
    heap = spandrel_heap_open(path, &options);
    CHECK(heap);
    unsigned int first = (unsigned int)spandrel_heap_named_root(heap, "first");
    unsigned int second = (unsigned int)spandrel_heap_named_root(heap, "second");
    uint64_t round = round_of(first);
    CHECK(round_of(second) == round && round_of(NUMBERED) == round);
    /* The child has a heap of its own, and is killed somewhere. */
    CHECK(spandrel_heap_close(heap) == 0);
    for (int turn = 0; turn < 20; turn++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            heap = spandrel_heap_open(path, &options);
            CHECK(heap);
            for (uint64_t next = round;; next++) set(next);
        }
        usleep(2000 + 977 * (unsigned int)turn);
        CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
        heap = spandrel_heap_open(path, &options);
        CHECK(heap);
        round = round_of(first);
        CHECK(round_of(second) == round && round_of(NUMBERED) == round);
        CHECK(spandrel_heap_close(heap) == 0);
    }
}

int main(int count, char **words) {
    CHECK(count == 3);
    if (strcmp(words[2], "fill") == 0) fill(words[1]);
    else if (strcmp(words[2], "open") == 0) opened(words[1]);
    else torn(words[1]);
    return 0;
}
