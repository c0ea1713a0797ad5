/* Appends of 4 KiB to 64 MiB, several buffers in turn and from several threads, shrunk to fit at the end. */
#include <pthread.h>

#include "abi.h"

#define STEP 4096

static void *append(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    unsigned char *buffers[3] = {0};
    size_t size = 0, largest = 24 * MIB;
    for (; size < largest; size += STEP)
        for (int i = 0; i < 3; i++) {
            unsigned char *grown = realloc(buffers[i], size + STEP);
            CHECK(grown != NULL, "realloc to %zu", size + STEP);
            buffers[i] = grown;
            fill_from(grown, size, size + STEP, seed + (uint64_t)i);
            if (size) CHECK(grown[size - 1] == pattern_byte(seed + (uint64_t)i, size - 1), "byte before %zu", size);
            CHECK(grown[0] == pattern_byte(seed + (uint64_t)i, 0), "first byte at size %zu", size);
        }
    for (int i = 0; i < 3; i++) {
        CHECK_PATTERN(buffers[i], size, seed + (uint64_t)i);
        buffers[i] = realloc(buffers[i], size / 3);
        CHECK_PATTERN(buffers[i], size / 3, seed + (uint64_t)i);
        free(buffers[i]);
    }
    return NULL;
}

int main(void) {
    unsigned char *buffer = NULL;
    size_t size = 0;
    for (; size < 64 * MIB; size += STEP) {
        buffer = realloc(buffer, size + STEP);
        CHECK(buffer != NULL, "realloc to %zu", size + STEP);
        fill_from(buffer, size, size + STEP, 1);
    }
    CHECK_PATTERN(buffer, size, 1);
    /* What was never written must not be paid for: at most one old copy, and a batch ahead. */
    size_t resident = resident_bytes();
    CHECK(resident < 2 * size + 64 * MIB, "%zu MiB resident for %zu MiB", resident / MIB, size / MIB);
    free(buffer);

    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, append, (void *)(i * 10 + 1)) == 0, "thread");
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    return 0;
}
