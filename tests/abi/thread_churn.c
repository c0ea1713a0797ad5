/* 10,000 threads come and go; each allocates and frees, some memory is freed by others after its thread has
 * died; memory does not grow with the number of threads that ever were. */
#include <pthread.h>

#include "abi.h"

enum { THREADS = 10000, AT_ONCE = 16, LEFT = 4 };

struct bequest {
    unsigned char *objects[LEFT];
    size_t sizes[LEFT];
};

static void *thread(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    void *objects[64];
    for (int i = 0; i < 64; i++) {
        size_t size = random_size(&seed, 1, i == 0 ? 512 * KIB : 8 * KIB);
        objects[i] = malloc(size);
        CHECK(objects[i] != NULL, "malloc");
        memset(objects[i], i, size < 4096 ? size : 4096);
    }
    for (int i = 0; i < 64; i++) free(objects[i]);
    struct bequest *left = malloc(sizeof *left);
    for (int i = 0; i < LEFT; i++) {
        left->sizes[i] = random_size(&seed, 1, 32 * KIB);
        left->objects[i] = malloc(left->sizes[i]);
        fill_from(left->objects[i], 0, left->sizes[i], left->sizes[i]);
    }
    return left;
}

int main(void) {
    size_t early = 0;
    for (uintptr_t n = 0; n < THREADS; n += AT_ONCE) {
        pthread_t threads[AT_ONCE];
        for (uintptr_t i = 0; i < AT_ONCE; i++) CHECK(pthread_create(&threads[i], NULL, thread, (void *)(n + i + 1)) == 0, "thread %zu", (size_t)(n + i));
        for (int i = 0; i < AT_ONCE; i++) {
            void *result;
            CHECK(pthread_join(threads[i], &result) == 0, "join");
            struct bequest *left = result;
            for (int k = 0; k < LEFT; k++) {
                CHECK_PATTERN(left->objects[k], left->sizes[k], left->sizes[k]);
                if (k % 2) left->objects[k] = realloc(left->objects[k], left->sizes[k] + 1000);
                free(left->objects[k]);
            }
            free(left);
        }
        if (n == 1600) early = resident_bytes();
    }
    size_t late = resident_bytes();
    CHECK(late < early + 64 * MIB, "resident memory grew from %zu to %zu MiB over %d threads", early / MIB, late / MIB, THREADS);
    CHECK(count_mappings() < 3000, "%zu mappings", count_mappings());
    return 0;
}
