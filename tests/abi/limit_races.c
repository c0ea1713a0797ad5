/* Several threads at a hard limit (first argument: its MiB; second: what to try).
 *   one-of-two   two threads ask at once for what only one may have: never both
 *   never-both   the same, each when it likes
 *   comes-back   threads take and give back, together less than the limit: none is refused
 *   moves        an object moves by page tables beside small requests: none is refused */
#include "abi.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 2000

static size_t limit;
static atomic_int arrived;
static void *held[2];

/* Both go on at the same moment, which threads that sleep do not. */
static void meet(int count) {
    atomic_fetch_add(&arrived, 1);
    while (atomic_load(&arrived) < 2 * count) {
    }
}

static void *take_most(void *which) {
    for (int round = 0; round < ROUNDS; round++) {
        meet(3 * round + 1);
        void *object = malloc(limit - 4 * MIB);
        held[(size_t)which] = object;
        meet(3 * round + 2);
        if (which == NULL) {
            CHECK(held[0] == NULL || held[1] == NULL, "round %d: both have it", round);
        }
        free(object);
        if (which == NULL && round % 2 == 1) {
            malloc_trim(0);
        }
        meet(3 * round + 3);
    }
    return NULL;
}

static atomic_int holders, refused, done;
static atomic_long all_got;

/* A thread that was refused while the other had it must not get it from elsewhere when that one gives it back:
 * it is to be had once, and the other may ask again. On a machine that is busy one thread may never ask in time. */
static void *take_most_at_will(void *unused) {
    long got = 0;
    while (!atomic_load(&done)) {
        void *object = malloc(limit - 4 * MIB);
        if (object == NULL) {
            atomic_store(&refused, 1);
            continue;
        }
        CHECK(atomic_fetch_add(&holders, 1) == 0, "after %ld: both have it", got);
        atomic_fetch_sub(&holders, 1);
        free(object);
        got++;
    }
    atomic_fetch_add(&all_got, got);
    return NULL;
}

/* Sizes differ, so that what one gave back has to go before the other can have as much. */
static void *take_and_give(void *which) {
    unsigned seed = 1 + (unsigned)(size_t)which;
    for (int round = 0; round < ROUNDS; round++) {
        size_t size = limit / 16 + rand_r(&seed) % (limit * 3 / 8 - limit / 16);
        char *object = malloc(size);
        if (object == NULL) {
            atomic_fetch_add(&refused, 1);
            continue;
        }
        for (size_t i = 0; i < size; i += 4 * KIB) {
            object[i] = 1;
        }
        free(object);
    }
    return NULL;
}

static void *take_small(void *unused) {
    while (!atomic_load(&done)) {
        char *objects[64];
        for (int i = 0; i < 64; i++) {
            objects[i] = malloc(300 * KIB);
            if (objects[i] == NULL) {
                atomic_fetch_add(&refused, 1);
            }
        }
        for (int i = 0; i < 64; i++) {
            free(objects[i]);
        }
        malloc_trim(0);
    }
    return NULL;
}

/* 500 MiB end in a slot of 512, and 516 in another, to which the pages move. */
static void move(void) {
    for (time_t end = time(NULL) + 2; time(NULL) < end;) {
        size_t sizes[] = {500 * MIB, 516 * MIB};
        char *object = malloc(100 * MIB);
        CHECK(object != NULL, "100 MiB");
        for (int step = 0; step < 2; step++) {
            char *moved = realloc(object, sizes[step]);
            object = moved != NULL ? moved : object;
        }
        free(object);
    }
    atomic_store(&done, 1);
}

int main(int argc, char **argv) {
    CHECK(argc == 3, "usage: limit_races MIB WHAT");
    limit = strtoul(argv[1], NULL, 10) * MIB;
    pthread_t threads[2];
    if (strcmp(argv[2], "moves") == 0) {
        CHECK(pthread_create(threads, NULL, take_small, NULL) == 0, "a thread");
        move();
        pthread_join(threads[0], NULL);
    } else if (strcmp(argv[2], "never-both") == 0) {
        for (size_t i = 0; i < 2; i++) {
            CHECK(pthread_create(&threads[i], NULL, take_most_at_will, NULL) == 0, "a thread");
        }
        sleep(1);
        atomic_store(&done, 1);
        pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
        CHECK(atomic_exchange(&refused, 0), "they did not meet");
        CHECK(atomic_load(&all_got) > 100, "%ld times", atomic_load(&all_got));
    } else {
        void *(*what)(void *) = strcmp(argv[2], "one-of-two") == 0 ? take_most : take_and_give;
        for (size_t i = 0; i < 2; i++) {
            CHECK(pthread_create(&threads[i], NULL, what, (void *)i) == 0, "a thread");
        }
        pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
    }
    CHECK(atomic_load(&refused) == 0, "%d requests were refused", atomic_load(&refused));
    return 0;
}
