/* What a host does to descriptors, stacks and signals around a durable state.
 *
 * durable_hosts DIR MODE [...]: the mode says what.
 *   print       an object of 'A', then much text on the standard output, whatever that is
 *   check       the object has nothing else
 *   reuse       all descriptors but the standard ones are closed, and files of the program take their numbers; prints how many commands were acknowledged
 *   count       prints what the counter has
 *   stacks      each call on a stack as small as the header says
 *   handler N   a handler of a signal reads while its thread writes; stores are found in the way N
 */
#include "abi.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spandrel_durable.h>
#include <sys/stat.h>
#include <sys/time.h>

enum { BYTES = 256 << 10, FILES = 8, COUNTERS = 1000 };

static spandrel_durable *db;
static char *data;
static long *counters;

static int init(spandrel_durable *state, void *unused) {
    (void)unused;
    data = spandrel_durable_root(state, "data");
    counters = spandrel_durable_root(state, "counters");
    if (data) return 0;
    data = spandrel_durable_malloc(state, BYTES);
    counters = spandrel_durable_calloc(state, COUNTERS, sizeof *counters);
    if (!data || !counters || spandrel_durable_memset(state, data, 'A', BYTES)) return -1;
    return spandrel_durable_set_root(state, "data", data) | spandrel_durable_set_root(state, "counters", counters);
}

static int count(spandrel_durable *state, void *unused) {
    (void)unused;
    for (int i = 0; i < COUNTERS; i++) counters[i]++;
    return spandrel_durable_wrote(state, counters, COUNTERS * sizeof *counters);
}

static int get(spandrel_durable *state, void *into) {
    (void)state;
    *(long *)into = counters[0];
    return 0;
}

static void open_state(const char *path, unsigned stores) {
    spandrel_durable_options options = {.struct_size = sizeof options, .stores = stores};
    db = spandrel_durable_open(path, &options, init, NULL);
    CHECK(db, "%s", spandrel_durable_error_text());
}

/* Of the program: what follows its first line is not its own. */
static const char LINE[] = "a line of the program\n";

static void reuse(const char *path) {
    int files[FILES];
    long acknowledged = 0;
    char name[4096];
    CHECK(close_range(3, ~0u, 0) == 0, "close_range");
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "%s.mine%d", path, i);
        files[i] = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        CHECK(files[i] == 3 + i && write(files[i], LINE, sizeof LINE) == sizeof LINE, "%s", name);
    }
    while (acknowledged < 3000 && spandrel_durable_write(db, count, NULL) == 0) acknowledged++;
    int refused = spandrel_durable_close(db);
    for (int i = 0; i < FILES; i++) {
        struct stat status;
        CHECK(fstat(files[i], &status) == 0, "descriptor %d was closed", files[i]);
        CHECK(status.st_size == sizeof LINE, "file %d has %ld bytes", i, (long)status.st_size);
    }
    printf("%ld %d\n", acknowledged, refused);
}

static const char *directory;

static void *opens(void *unused) {
    open_state(directory, SPANDREL_DURABLE_STORES_NAMED);
    return unused;
}

static void *writes(void *unused) {
    CHECK(spandrel_durable_write(db, count, NULL) == 0, "%s", spandrel_durable_error_text());
    return unused;
}

static void *copies(void *unused) {
    char name[4096];
    snprintf(name, sizeof name, "%s.copy", directory);
    CHECK(spandrel_durable_copy(db, name) == 0, "%s", spandrel_durable_error_text());
    return unused;
}

static void *closes(void *unused) {
    CHECK(spandrel_durable_close(db) == 0, "%s", spandrel_durable_error_text());
    return unused;
}

static void on_stack(size_t kib, void *(*function)(void *)) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    CHECK(pthread_attr_setstacksize(&attributes, kib * KIB) == 0, "%zu KiB", kib);
    CHECK(pthread_create(&thread, &attributes, function, NULL) == 0, "a thread");
    pthread_join(thread, NULL);
}

static volatile long nested, served;

static void handle(int unused) {
    long value;
    int number = errno;
    (void)unused;
    if (spandrel_durable_read(db, get, &value) == 0)
        served++;
    else
        nested += errno == EDEADLK;
    errno = number;
}

int main(int argc, char **argv) {
    CHECK(argc > 2, "arguments");
    directory = argv[1];
    const char *mode = argv[2];
    if (strcmp(mode, "stacks") == 0) {
        for (int turn = 0; turn < 2; turn++) {
            on_stack(1024, opens);
            on_stack(128, writes);
            if (turn == 0) on_stack(512, copies);
            on_stack(256, closes);
        }
        return 0;
    }
    if (strcmp(mode, "handler") == 0) {
        unsigned stores = (unsigned)atoi(argv[3]);
        struct itimerval often = {{0, 300}, {0, 300}};
        if (stores == SPANDREL_DURABLE_STORES_TRANSLATED) spandrel_durable_fix_addresses();
        open_state(directory, stores);
        signal(SIGALRM, handle);
        setitimer(ITIMER_REAL, &often, NULL);
        for (int i = 0; i < 2000 || nested + served < 100; i++)
            CHECK(spandrel_durable_write(db, count, NULL) == 0, "%s", spandrel_durable_error_text());
        signal(SIGALRM, SIG_IGN);
        return spandrel_durable_close(db);
    }
    open_state(directory, SPANDREL_DURABLE_STORES_NAMED);
    if (strcmp(mode, "print") == 0) {
        CHECK(spandrel_durable_write(db, count, NULL) == 0, "%s", spandrel_durable_error_text());
        for (int i = 0; i < 20000; i++) printf("request %d was answered\n", i), fprintf(stderr, "and said so\n");
        fflush(stdout);
    } else if (strcmp(mode, "check") == 0) {
        for (int i = 0; i < BYTES; i++) CHECK(data[i] == 'A', "byte %d: %.40s", i, data + i);
    } else if (strcmp(mode, "count") == 0) {
        for (int i = 1; i < COUNTERS; i++) CHECK(counters[i] == counters[0], "%d", i);
        printf("%ld\n", counters[0]);
    } else if (strcmp(mode, "reuse") == 0) {
        reuse(directory);
        return 0;
    }
    return spandrel_durable_close(db);
}
