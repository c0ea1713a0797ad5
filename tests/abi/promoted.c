/* Large objects that begin with small pages and are filled get huge pages; those that stay sparse do not; contents stay in threads that go on. */
#include <pthread.h>
#include <time.h>

#include "abi.h"

enum { DENSE = 96 * MIB, SPARSE = 512 * MIB, WAIT_S = 60, STRESS_S = 3 };

/* Bytes in huge pages of the process. */
static size_t huge(void) {
    FILE *rollup = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    size_t kib = 0;
    while (rollup != NULL && fgets(line, sizeof line, rollup)) sscanf(line, "AnonHugePages: %zu", &kib);
    if (rollup != NULL) fclose(rollup);
    return kib * KIB;
}

static void check(const unsigned *object, size_t words, unsigned seed) {
    for (size_t i = 0; i < words; i += 256) CHECK(object[i] == (unsigned)(seed + i), "word %zu of %zu is %u", i, words, object[i]);
}

/* Objects are made, filled, grown, shrunk and freed while the library looks at them. */
static void *stress(void *seed_at) {
    uint64_t state = *(uint64_t *)seed_at;
    time_t end = time(NULL) + STRESS_S;
    while (time(NULL) < end) {
        unsigned seed = (unsigned)next_random(&state);
        size_t words = (2 + next_random(&state) % 30) * MIB / sizeof(unsigned), more = words * (50 + next_random(&state) % 100) / 100;
        unsigned *object = calloc(words, sizeof *object);
        CHECK(object != NULL, "calloc");
        for (size_t i = 0; i < words; i += 256) object[i] = (unsigned)(seed + i);
        if (next_random(&state) % 8 == 0) usleep(5000);
        object = realloc(object, more * sizeof *object);
        CHECK(object != NULL, "realloc");
        check(object, more < words ? more : words, seed);
        free(object);
    }
    return NULL;
}

int main(void) {
    char *sparse = calloc(1, SPARSE);
    unsigned *dense = calloc(1, DENSE);
    CHECK(sparse != NULL && dense != NULL, "calloc");
    uint64_t state = 7;
    for (int i = 0; i < 1000; i++) sparse[next_random(&state) % SPARSE] = 1;
    /* Not in order, as a table of hashes is filled. */
    const size_t words = DENSE / sizeof *dense, pages = DENSE / 4096;
    for (size_t i = 0; i < pages; i++) {
        size_t first = i * 7919 % pages * 1024;
        for (size_t j = 0; j < 1024; j += 256) dense[first + j] = (unsigned)(42 + first + j);
    }
    size_t before = resident();
    int is_ours = on_spandrel();
    for (int tenths = 0; is_ours && huge() < DENSE / 2; tenths++) {
        CHECK(tenths < WAIT_S * 10, "%zu MiB in huge pages", huge() / MIB);
        usleep(100000);
    }
    check(dense, words, 42);
    if (is_ours) CHECK(resident() < before + 16 * MIB, "%zu MiB after %zu", resident() / MIB, before / MIB);
    pthread_t threads[2];
    uint64_t seeds[2] = {1, 2};
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, stress, &seeds[i]) == 0, "thread");
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    check(dense, words, 42);
    if (is_ours) CHECK(resident() < before + 128 * MIB, "%zu MiB after %zu", resident() / MIB, before / MIB);
    free(dense);
    free(sparse);
    return 0;
}
