/* A bounded queue of pointers from some threads to others. Pointers are batches of work, so that the lock is
 * taken seldom beside what is measured. */
#ifndef RING_H
#define RING_H

#include "program.h"

enum { RING_SIZE = 16 };

struct ring {
    pthread_mutex_t lock;
    pthread_cond_t not_full, not_empty;
    unsigned head, tail;
    void *items[RING_SIZE];
};

static inline void ring_init(struct ring *ring) {
    ring->head = ring->tail = 0;
    CHECK(pthread_mutex_init(&ring->lock, NULL) == 0, "lock");
    CHECK(pthread_cond_init(&ring->not_full, NULL) == 0, "condition");
    CHECK(pthread_cond_init(&ring->not_empty, NULL) == 0, "condition");
}

static inline void ring_put(struct ring *ring, void *item) {
    pthread_mutex_lock(&ring->lock);
    while (ring->head - ring->tail == RING_SIZE) pthread_cond_wait(&ring->not_full, &ring->lock);
    ring->items[ring->head++ % RING_SIZE] = item;
    pthread_cond_signal(&ring->not_empty);
    pthread_mutex_unlock(&ring->lock);
}

static inline void *ring_get(struct ring *ring) {
    pthread_mutex_lock(&ring->lock);
    while (ring->head == ring->tail) pthread_cond_wait(&ring->not_empty, &ring->lock);
    void *item = ring->items[ring->tail++ % RING_SIZE];
    pthread_cond_signal(&ring->not_full);
    pthread_mutex_unlock(&ring->lock);
    return item;
}

#endif
