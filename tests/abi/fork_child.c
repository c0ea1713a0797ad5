/* A child of a threaded program asks for the mode while the parent's other threads did when it was forked; and it
 * counts only its own requests. */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abi.h"

static const char *(*mode)(void);
static int stop;

static void *ask(void *argument) {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        if (strlen(mode()) == 0) abort();
    }
    return argument;
}

int main(void) {
    mode = (const char *(*)(void))dlsym(RTLD_DEFAULT, "spandrel_mode");
    CHECK(mode != NULL, "spandrel_mode");
    for (int i = 0; i < 1000; i++) free(malloc(3000));
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, ask, NULL);
    for (int i = 0; i < 200; i++) {
        pid_t child = fork();
        if (child == 0) {
            /* The harness ends a child that hangs. */
            if (strlen(mode()) == 0) _exit(1);
            for (int k = 0; k < 10; k++) free(malloc(3000));
            if (i == 0) exit(0);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "child %d: status %#x", i, status);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    return 0;
}
