/* What is recorded of a program. The argument says what it does:
 *   counts    1000 objects of 4000 bytes; half of them are resized to 8000, all are given back
 *   killed    the same, then it kills itself
 *   waits     the same, then it writes a file (second argument) and waits for a signal
 *   forks     the same in itself and in a child, which ends by _exit
 *   raw-fork  as forks, by the system call, so that no fork handler runs
 *   closes    the same; in the middle it closes all descriptors and opens its own in their place (second argument: a file)
 *   threads   four threads make objects that others give back
 *   executes  the same, then executes itself with "counts" */
#include "abi.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define OBJECTS 1000
#define THREADS 4
#define TURNS 20000

static char *objects[OBJECTS];

static void make(void) {
    for (int i = 0; i < OBJECTS; i++) {
        objects[i] = i % 4 == 3 ? calloc(1, 4000) : malloc(4000);
        CHECK(objects[i] != NULL, "malloc");
        memset(objects[i], i, 4000);
    }
}

static void end(void) {
    for (int i = 0; i < OBJECTS; i++) {
        CHECK(objects[i][3999] == (char)i, "object %d", i);
        if (i % 2 == 1) {
            objects[i] = realloc(objects[i], 8000);
            CHECK(objects[i] != NULL && objects[i][3999] == (char)i, "realloc");
        }
    }
    for (int i = 0; i < OBJECTS; i++) {
        free(objects[i]);
    }
}

static void fork_by(int raw) {
    make();
    pid_t child = raw ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        end();
        make();
        _exit(7);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7, "the child");
    end();
}

static void *shared[64];

static void *exchange(void *seed) {
    uint64_t random = (uint64_t)(size_t)seed;
    for (int turn = 0; turn < TURNS; turn++) {
        size_t size = random_size(&random, 16, 64 * KIB);
        char *object = malloc(size);
        CHECK(object != NULL, "malloc");
        object[0] = 1;
        if (turn % 8 == 0) {
            object = realloc(object, 2 * size);
            CHECK(object != NULL && object[0] == 1, "realloc");
        }
        free(__atomic_exchange_n(&shared[next_random(&random) % 64], object, __ATOMIC_ACQ_REL));
    }
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc >= 2, "usage: recorded WHAT");
    const char *what = argv[1];
    if (strcmp(what, "counts") == 0) {
        make();
        end();
    } else if (strcmp(what, "killed") == 0) {
        make();
        end();
        raise(SIGKILL);
    } else if (strcmp(what, "waits") == 0) {
        make();
        end();
        CHECK(creat(argv[2], 0600) >= 0, "creat");
        pause();
    } else if (strcmp(what, "forks") == 0) {
        fork_by(0);
    } else if (strcmp(what, "raw-fork") == 0) {
        fork_by(1);
    } else if (strcmp(what, "closes") == 0) {
        make();
        for (int fd = 3; fd < 256; fd++) {
            close(fd);
        }
        int own = open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0600);
        for (int i = 0; i < 64; i++) {
            dup(own);
        }
        end();
        /* Enough for another block or two. */
        for (int i = 0; i < 20; i++) {
            make();
            end();
        }
        CHECK(write(own, "mine", 4) == 4, "write");
    } else if (strcmp(what, "threads") == 0) {
        pthread_t threads[THREADS];
        for (size_t i = 0; i < THREADS; i++) {
            CHECK(pthread_create(&threads[i], NULL, exchange, (void *)(i + 1)) == 0, "a thread");
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
        }
        for (int i = 0; i < 64; i++) {
            free(shared[i]);
        }
    } else if (strcmp(what, "executes") == 0) {
        make();
        end();
        execl("/proc/self/exe", argv[0], "counts", (char *)NULL);
        CHECK(0, "exec");
    } else {
        CHECK(0, "no such thing: %s", what);
    }
    return 0;
}
