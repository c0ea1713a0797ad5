/* Several threads hammer the allocator while the main thread forks 200 times; each child allocates, frees,
 * reallocates, starts a thread, forks again and exits; the parent's threads go on. A deadlock is seen by the harness. */
#include <pthread.h>
#include <sys/wait.h>

#include "abi.h"

enum { THREADS = 4, FORKS = 200 };
static int stop;
static unsigned long operations[THREADS];

static void churn(uint64_t *seed, int count) {
    unsigned char *objects[32] = {0};
    size_t sizes[32] = {0};
    for (int n = 0; n < count; n++) {
        int i = (int)(next_random(seed) % 32);
        size_t size = random_size(seed, 1, n % 64 == 0 ? 2 * MIB : 4 * KIB);
        size_t probe = sizes[i] < 64 ? sizes[i] : 64;
        CHECK(!objects[i] || first_difference(objects[i], 0, probe, (uint64_t)i) == probe, "contents");
        if (n % 5 == 4) {
            free(objects[i]);
            objects[i] = NULL;
            sizes[i] = 0;
            continue;
        }
        objects[i] = n % 7 == 0 && !objects[i] ? memalign(4096, size) : realloc(objects[i], size);
        CHECK(objects[i] != NULL, "size %zu", size);
        size_t kept = sizes[i] < size ? sizes[i] : size;
        kept = kept < 64 ? kept : 64;
        CHECK(first_difference(objects[i], 0, kept, (uint64_t)i) == kept, "contents after realloc");
        fill_from(objects[i], 0, size < 64 ? size : 64, (uint64_t)i);
        sizes[i] = size;
    }
    for (int i = 0; i < 32; i++) free(objects[i]);
}

static void *hammer(void *argument) {
    uintptr_t me = (uintptr_t)argument;
    uint64_t seed = me + 1;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        churn(&seed, 100);
        __atomic_add_fetch(&operations[me], 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void *in_child_thread(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    churn(&seed, 100);
    return malloc(5000);
}

static void wait_for(pid_t child, const char *who) {
    int status;
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s ended with status %#x", who, status);
}

int main(void) {
    pthread_t threads[THREADS];
    unsigned char *inherited = malloc(MIB);
    fill_from(inherited, 0, MIB, 77);
    for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, hammer, (void *)i) == 0, "thread");
    uint64_t seed = 99;
    for (int n = 0; n < FORKS; n++) {
        churn(&seed, 20);
        pid_t child = fork();
        CHECK(child >= 0, "fork");
        if (child == 0) {
            CHECK_PATTERN(inherited, MIB, 77);
            inherited = realloc(inherited, 3 * MIB);
            CHECK_PATTERN(inherited, MIB, 77);
            churn(&seed, 200);
            if (n % 4 == 0) {
                pthread_t thread;
                void *result;
                CHECK(pthread_create(&thread, NULL, in_child_thread, (void *)(uintptr_t)(n + 1)) == 0, "thread in child");
                CHECK(pthread_join(thread, &result) == 0, "join in child");
                free(result);
            }
            pid_t grandchild = fork();
            CHECK(grandchild >= 0, "fork in child");
            if (grandchild == 0) {
                churn(&seed, 100);
                free(inherited);
                exit(0);
            }
            wait_for(grandchild, "grandchild");
            free(inherited);
            exit(0);
        }
        wait_for(child, "child");
        CHECK(first_difference(inherited, 0, 4096, 77) == 4096, "the child's writes are seen by the parent");
    }
    unsigned long before[THREADS];
    for (int i = 0; i < THREADS; i++) before[i] = __atomic_load_n(&operations[i], __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++)
        while (__atomic_load_n(&operations[i], __ATOMIC_RELAXED) == before[i]) usleep(1000);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}
