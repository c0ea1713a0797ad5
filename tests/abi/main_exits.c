/* The main thread ends by pthread_exit; the process ends with the last of the program's own threads. So does a child
 * of a fork, whose main thread is the one that forked; whether the main thread or another has allocated. */
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>

#include "abi.h"

enum { OBJECTS = 200000, BYTES = 1000 };

static void *objects[OBJECTS];
static sem_t allocated;

static void allocate(void) {
    for (int i = 0; i < OBJECTS; i++) {
        objects[i] = malloc(BYTES);
        CHECK(objects[i] != NULL, "malloc");
        memset(objects[i], 1, BYTES);
    }
}

static void *free_all(void *argument) {
    (void)argument;
    for (int i = 0; i < OBJECTS; i++) free(objects[i]);
    return NULL;
}

static void *allocate_and_free_all(void *argument) {
    allocate();
    sem_post(&allocated);
    return free_all(argument);
}

/* The calling thread, the process's main thread, ends. */
static void allocate_and_leave(int in_other_thread) {
    pthread_t thread;
    if (in_other_thread) {
        CHECK(sem_init(&allocated, 0, 0) == 0, "sem_init");
        CHECK(pthread_create(&thread, NULL, allocate_and_free_all, NULL) == 0, "pthread_create");
        while (sem_wait(&allocated) != 0) continue;
    } else {
        allocate();
        CHECK(pthread_create(&thread, NULL, free_all, NULL) == 0, "pthread_create");
    }
    pthread_exit(NULL);
}

static void *forker(void *argument) {
    (void)argument;
    for (int in_other_thread = 0; in_other_thread < 2; in_other_thread++) {
        free(malloc(BYTES));
        pid_t child = fork();
        CHECK(child >= 0, "fork");
        if (child == 0) allocate_and_leave(in_other_thread);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "the child ended with %#x", status);
    }
    return NULL;
}

int main(int argc, char **argv) {
    (void)argv;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, forker, NULL) == 0, "pthread_create");
    pthread_join(thread, NULL);
    allocate_and_leave(argc > 1);
}
