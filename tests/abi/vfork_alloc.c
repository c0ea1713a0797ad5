/* A vfork child that allocates and frees before it leaves, as it must not and some do, while threads on every
 * processor hammer the same sizes: no object is given out twice, and the parent goes on as before. */
#include <pthread.h>
#include <sys/wait.h>

#include "abi.h"

enum { THREADS = 4, LIVE = 64, CHILDREN = 3000, IN_CHILD = 200 };

/* The C library's other name for it. */
pid_t __vfork(void) __attribute__((returns_twice));

static int stop;

static void *hammer(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    uint64_t *objects[LIVE] = {0};
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        size_t i = next_random(&seed) % LIVE;
        if (objects[i]) {
            CHECK(*objects[i] == (uint64_t)(uintptr_t)objects[i] + (uintptr_t)argument, "an object of two owners");
            *objects[i] = 0;
            free(objects[i]);
        }
        objects[i] = malloc(64);
        CHECK(objects[i] != NULL, "malloc");
        *objects[i] = (uint64_t)(uintptr_t)objects[i] + (uintptr_t)argument;
    }
    for (size_t i = 0; i < LIVE; i++) free(objects[i]);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, hammer, (void *)(i + 1)) == 0, "thread");
    static uint64_t *objects[IN_CHILD];
    for (int n = 0; n < CHILDREN; n++) {
        pid_t child = n % 2 ? __vfork() : vfork();
        CHECK(child >= 0, "vfork");
        if (child == 0) {
            for (int i = 0; i < IN_CHILD; i++) {
                objects[i] = malloc(64);
                *objects[i] = (uint64_t)i;
            }
            for (int i = 0; i < IN_CHILD; i++) {
                if (*objects[i] != (uint64_t)i) _exit(1);
                free(objects[i]);
            }
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "child %d ended with %#x", n, status);
        free(malloc(64));
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}
