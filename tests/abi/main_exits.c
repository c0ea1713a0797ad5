/* The main thread ends by pthread_exit; the process ends with the last of the program's own threads. So does a child
 * of a fork, whose main thread is the one that forked. */
#include <pthread.h>
#include <sys/wait.h>

#include "abi.h"

static void *objects[200000];

static void *worker(void *argument) {
    (void)argument;
    for (int i = 0; i < 200000; i++) free(objects[i]);
    return NULL;
}

static void allocate_and_leave(void) {
    pthread_t thread;
    for (int i = 0; i < 200000; i++) {
        objects[i] = malloc(1000);
        CHECK(objects[i] != NULL, "malloc");
        memset(objects[i], 1, 1000);
    }
    CHECK(pthread_create(&thread, NULL, worker, NULL) == 0, "pthread_create");
    pthread_exit(NULL);
}

static void *forker(void *argument) {
    (void)argument;
    free(malloc(1000));
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) allocate_and_leave();
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the child ended with %#x", status);
    return NULL;
}

int main(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, forker, NULL) == 0, "pthread_create");
    pthread_join(thread, NULL);
    allocate_and_leave();
}
