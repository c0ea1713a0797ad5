/* Under a hard limit of so many MiB (the argument): whatever a program asks for, its memory stays within the limit,
 * requests beyond it fail as C says, and what was freed can be had again, in other sizes. */
#include "abi.h"

#include <pthread.h>

#define OBJECTS (1 << 20)
#define THREADS 4
/* What a program has beside its heap: itself, its libraries, the table below, our allocators' own tables. */
#define BESIDE (24 * MIB + limit / 40)

static size_t limit;
static void *objects[OBJECTS];

static void stays_within(const char *when) {
    size_t now = resident();
    CHECK(now <= limit + BESIDE, "%s: %zu MiB are resident, %zu are allowed", when, now / MIB, limit / MIB);
}

/* Objects of a size until there are no more; how many. */
static size_t fill(size_t from, size_t size) {
    size_t count = from;
    while (count < OBJECTS) {
        errno = 0;
        void *object = malloc(size);
        if (object == NULL) {
            CHECK(errno == ENOMEM, "malloc of %zu", size);
            break;
        }
        memset(object, (int)count, size);
        objects[count++] = object;
    }
    CHECK(count < OBJECTS, "no limit was met");
    return count;
}

static void empty(size_t from, size_t to) {
    for (size_t i = from; i < to; i++) {
        free(objects[i]);
        objects[i] = NULL;
    }
}

static void holds_most(size_t count, size_t size) {
    CHECK(count * size >= limit / 10 * 8, "%zu objects of %zu bytes are %zu MiB of %zu", count, size,
          count * size / MIB, limit / MIB);
}

static void *fill_in_thread(void *unused) {
    (void)unused;
    for (int round = 0; round < 20; round++) {
        enum { MOST = 4096 };
        static __thread void *mine[MOST];
        int count = 0;
        uint64_t seed = (uint64_t)round;
        while (count < MOST) {
            size_t size = random_size(&seed, 16 * KIB, 512 * KIB);
            void *object = malloc(size);
            if (object == NULL) break;
            memset(object, round, size);
            mine[count++] = object;
        }
        while (count > 0) free(mine[--count]);
    }
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 2, "the limit in MiB is missing");
    limit = (size_t)atol(argv[1]) * MIB;

    /* One size after another takes the place of the one before. */
    static const size_t sizes[] = {1000, 40 * KIB, 300 * KIB, 3 * MIB, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i] * OBJECTS <= limit) continue;
        size_t count = fill(0, sizes[i]);
        holds_most(count, sizes[i]);
        stays_within("full");
        empty(0, count);
    }

    /* Half of a full heap in rows makes room for large objects. */
    size_t count = fill(0, 1000);
    empty(0, count / 2);
    void *large = malloc(limit / 4);
    CHECK(large != NULL, "what was freed is not to be had again");
    memset(large, 1, limit / 4);
    stays_within("half and large");

    /* What cannot grow stays as it is. */
    errno = 0;
    CHECK(realloc(large, limit) == NULL && errno == ENOMEM, "grew beyond the limit");
    for (size_t i = 0; i < limit / 4; i += 4096) CHECK(((char *)large)[i] == 1, "changed at %zu", i);
    char *less = realloc(large, limit / 8);
    CHECK(less != NULL, "did not shrink");
    CHECK(less[limit / 8 - 1] == 1, "lost");
    free(less);
    empty(count / 2, count);

    /* A single one, cleared and appended to. */
    char *zero = calloc(limit / 4 * 3, 1);
    CHECK(zero != NULL, "three quarters");
    for (size_t i = 0; i < limit / 4 * 3; i += 4096) CHECK(zero[i]++ == 0, "not zero at %zu", i);
    stays_within("three quarters");
    free(zero);
    char *appended = malloc(MIB);
    size_t size = MIB;
    for (;;) {
        char *more = realloc(appended, size + 64 * KIB);
        if (more == NULL) break;
        memset(more + size, 3, 64 * KIB);
        appended = more;
        size += 64 * KIB;
        CHECK(size <= limit, "appended beyond the limit");
    }
    /* Where it is copied it and its copy have to find room. */
    CHECK(size >= limit / 10 * 4, "appended to %zu MiB of %zu", size / MIB, limit / MIB);
    CHECK(appended[size - 1] == 3, "lost");
    stays_within("appended");
    free(appended);

    /* All at once. */
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, fill_in_thread, NULL) == 0, "thread");
    for (int i = 0; i < 20; i++) {
        usleep(10000);
        stays_within("threads");
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    stays_within("at the end");
    return 0;
}
