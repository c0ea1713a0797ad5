/* Threads that move from processor to processor in the middle of requests, are interrupted by signals, and whose
 * caches another thread empties meanwhile: no object is given out twice, none is lost for good. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "abi.h"

enum { THREADS = 6, LIVE = 256, ROUNDS = 300000, MOVE_EVERY = 64, FORKS = 20 };

static int stop;
static cpu_set_t allowed;
static volatile sig_atomic_t signals;

static void on_signal(int number) {
    (void)number;
    signals++;
}

static void move_to(uint64_t random) {
    int nth = (int)(random % (uint64_t)CPU_COUNT(&allowed));
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed) && nth-- == 0) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            /* A container may forbid it. */
            (void)sched_setaffinity(0, sizeof one, &one);
            return;
        }
    }
}

static void hammer(uint64_t owner, int rounds) {
    uint64_t seed = owner;
    uint64_t *objects[LIVE] = {0};
    for (int n = 0; n < rounds; n++) {
        size_t i = next_random(&seed) % LIVE;
        if (objects[i]) {
            CHECK(objects[i][0] == (uint64_t)(uintptr_t)objects[i] + owner, "an object of two owners");
            objects[i][0] = 0;
            free(objects[i]);
        }
        objects[i] = malloc(16u << (next_random(&seed) % 10));
        CHECK(objects[i] != NULL, "malloc");
        objects[i][0] = (uint64_t)(uintptr_t)objects[i] + owner;
        if (n % MOVE_EVERY == 0) move_to(next_random(&seed));
    }
    for (size_t i = 0; i < LIVE; i++) {
        CHECK(!objects[i] || objects[i][0] == (uint64_t)(uintptr_t)objects[i] + owner, "an object of two owners");
        free(objects[i]);
    }
}

static void *thread(void *argument) {
    for (int turn = 0; turn < 2; turn++) hammer((uint64_t)(uintptr_t)argument << 32, ROUNDS);
    return NULL;
}

static void *trimmer(void *argument) {
    (void)argument;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        malloc_trim(0);
        usleep(300);
    }
    return NULL;
}

int main(void) {
    CHECK(sched_getaffinity(0, sizeof allowed, &allowed) == 0, "affinity");
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0, "sigaction");
    struct itimerval often = {{0, 200}, {0, 200}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0, "timer");
    pthread_t threads[THREADS], other;
    CHECK(pthread_create(&other, NULL, trimmer, NULL) == 0, "thread");
    for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, thread, (void *)(i + 1)) == 0, "thread");
    for (int n = 0; n < FORKS; n++) {
        pid_t child = fork();
        CHECK(child >= 0, "fork");
        if (child == 0) {
            hammer(99ull << 40, 20000);
            malloc_trim(0);
            hammer(98ull << 40, 20000);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "child %d ended with %#x", n, status);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(other, NULL);
    CHECK(signals > 0, "no signal came");
    CHECK(resident_bytes() < 200 * MIB, "%zu MiB are resident", resident_bytes() / MIB);
    return 0;
}
