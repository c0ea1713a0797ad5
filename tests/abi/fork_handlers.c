/* pthread_atfork handlers that allocate: of the program, and of a library that was initialised before the
 * preloaded one; forks from several threads at the same time. */
#include <pthread.h>
#include <sys/wait.h>

#include "abi.h"

extern int library_handlers_ran(void);

/* Handlers run in the thread that forks, and several may fork at the same time. */
static __thread unsigned char *in_prepare;
static int in_parent, in_child;

static void prepare(void) {
    in_prepare = malloc(200 * KIB);
    fill_from(in_prepare, 0, 200 * KIB, 1);
    for (int i = 0; i < 100; i++) free(malloc((size_t)i * 99));
}
static void parent(void) {
    CHECK_PATTERN(in_prepare, 200 * KIB, 1);
    free(in_prepare);
    __atomic_add_fetch(&in_parent, 1, __ATOMIC_RELAXED);
}
static void child(void) {
    CHECK_PATTERN(in_prepare, 200 * KIB, 1);
    in_prepare = realloc(in_prepare, MIB);
    CHECK_PATTERN(in_prepare, 200 * KIB, 1);
    free(in_prepare);
    in_child++;
}

static int stop;
static void *hammer(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        void *p = malloc(random_size(&seed, 1, 300 * KIB));
        CHECK(p != NULL, "malloc");
        free(realloc(p, random_size(&seed, 1, 300 * KIB)));
    }
    return NULL;
}

static void *forker(void *argument) {
    (void)argument;
    for (int n = 0; n < 30; n++) {
        pid_t pid = fork();
        CHECK(pid >= 0, "fork");
        if (pid == 0) {
            CHECK(in_child == 1, "child handler");
            for (int i = 0; i < 200; i++) free(realloc(malloc((size_t)i), (size_t)i * 500 + 1));
            _exit(0);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0, "child ended with %#x", status);
    }
    return NULL;
}

int main(void) {
    CHECK(pthread_atfork(prepare, parent, child) == 0, "pthread_atfork");
    pthread_t threads[5];
    for (uintptr_t i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, hammer, (void *)(i + 1)) == 0, "thread");
    for (uintptr_t i = 2; i < 5; i++) CHECK(pthread_create(&threads[i], NULL, forker, NULL) == 0, "thread");
    for (int i = 2; i < 5; i++) pthread_join(threads[i], NULL);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    CHECK(in_parent == 90, "%d parent handlers", in_parent);
    CHECK(library_handlers_ran() == 90, "%d handlers of the library", library_handlers_ran());
    return 0;
}
