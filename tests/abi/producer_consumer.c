/* Objects allocated by some threads and checked and freed by others. */
#include <pthread.h>

#include "abi.h"

enum { PRODUCERS = 3, CONSUMERS = 3, EACH = 60000, RING = 1024 };

struct item {
    size_t size;
    uint64_t seed;
    unsigned char bytes[];
};

static struct item *ring[RING];
static unsigned head, tail;
static int producers_left = PRODUCERS;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_empty = PTHREAD_COND_INITIALIZER, not_full = PTHREAD_COND_INITIALIZER;

static void *produce(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    for (int i = 0; i < EACH; i++) {
        size_t size = random_size(&seed, 1, i % 500 == 0 ? 2 * MIB : 4 * KIB);
        struct item *item = i % 3 == 0 ? calloc(1, sizeof *item + size) : malloc(sizeof *item + size);
        CHECK(item != NULL, "size %zu", size);
        item->size = size;
        item->seed = next_random(&seed);
        fill_from(item->bytes, 0, size, item->seed);
        pthread_mutex_lock(&lock);
        while (head - tail == RING) pthread_cond_wait(&not_full, &lock);
        ring[head++ % RING] = item;
        pthread_cond_signal(&not_empty);
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_lock(&lock);
    producers_left--;
    pthread_cond_broadcast(&not_empty);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void *consume(void *argument) {
    uint64_t seed = 1000 + (uint64_t)(uintptr_t)argument;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (head == tail && producers_left) pthread_cond_wait(&not_empty, &lock);
        if (head == tail) {
            pthread_mutex_unlock(&lock);
            return NULL;
        }
        struct item *item = ring[tail++ % RING];
        pthread_cond_signal(&not_full);
        pthread_mutex_unlock(&lock);
        CHECK_PATTERN(item->bytes, item->size, item->seed);
        if (next_random(&seed) % 8 == 0) {
            item = realloc(item, sizeof *item + item->size * 2);
            CHECK_PATTERN(item->bytes, item->size, item->seed);
        }
        free(item);
    }
}

int main(void) {
    pthread_t threads[PRODUCERS + CONSUMERS];
    for (uintptr_t i = 0; i < PRODUCERS; i++) CHECK(pthread_create(&threads[i], NULL, produce, (void *)(i + 1)) == 0, "thread");
    for (uintptr_t i = 0; i < CONSUMERS; i++) CHECK(pthread_create(&threads[PRODUCERS + i], NULL, consume, (void *)(i + 1)) == 0, "thread");
    for (int i = 0; i < PRODUCERS + CONSUMERS; i++) CHECK(pthread_join(threads[i], NULL) == 0, "join");
    CHECK(head == (unsigned)(PRODUCERS * EACH) && tail == head, "items lost");
    return 0;
}
