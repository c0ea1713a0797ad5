/* Threads that are the first to need an allocator, all at once. Each looks after its own object. */
#include "abi.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4 };
static const size_t sizes[] = {20000, 200, 200000, 5000};
static atomic_int ready;

static void *first(void *number) {
    unsigned char own = (unsigned char)(1 + (size_t)number);
    unsigned char *objects[sizeof sizes / sizeof *sizes];
    atomic_fetch_add(&ready, 1);
    while (atomic_load(&ready) < THREADS) {}
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        objects[i] = malloc(sizes[i]);
        CHECK(objects[i] != NULL, "no memory for %zu bytes", sizes[i]);
        memset(objects[i], own, sizes[i]);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t at = 0; at < sizes[i]; at++)
            CHECK(objects[i][at] == own, "byte %zu of %zu is another's", at, sizes[i]);
        free(objects[i]);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, first, (void *)i) == 0, "no thread");
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}
