/* Goes on with little for some seconds beside free memory, so that the library looks whether others need it:
 * on a thread with the smallest stack, in the child of a vfork, and without a descriptor to be had. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "abi.h"

#define OBJECTS 32768

static void *objects[OBJECTS];

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

/* More requests than caches have objects for. */
static void go_on(double how_long) {
    void *few[600];
    for (double end = seconds() + how_long; seconds() < end;) {
        for (int i = 0; i < 600; i++) {
            errno = 77;
            few[i] = malloc(200 + i % 7 * 300);
            CHECK(few[i] != NULL && errno == 77, "malloc leaves errno alone");
        }
        for (int i = 0; i < 600; i++) {
            free(few[i]);
            CHECK(errno == 77, "free leaves errno alone");
        }
    }
}

static void *thread(void *argument) {
    go_on(2.2);
    return argument;
}

static int next_descriptor(void) {
    int descriptor = open("/dev/null", O_RDONLY);
    CHECK(descriptor >= 0, "open");
    close(descriptor);
    return descriptor;
}

int main(int argc, char **argv) {
    for (int i = 0; i < OBJECTS; i++) {
        objects[i] = malloc(1000);
        memset(objects[i], 1, 1000);
    }
    for (int i = 0; i < OBJECTS; i++) {
        if (i / 64 % 8 != 0) free(objects[i]);
    }
    int before = next_descriptor();
    if (argc > 1 && strcmp(argv[1], "exhausted") == 0) {
        struct rlimit limit = {0, 4096};
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
        go_on(2.2);
        limit.rlim_cur = 1024;
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    } else if (argc > 1 && strcmp(argv[1], "vfork") == 0) {
        pid_t child = vfork();
        if (child == 0) {
            go_on(2.2);
            _exit(3);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3, "the child");
    } else {
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        CHECK(pthread_attr_setstacksize(&attributes, 16 * KIB) == 0, "16 KiB stack");
        pthread_t thread_id;
        CHECK(pthread_create(&thread_id, &attributes, thread, NULL) == 0, "thread");
        CHECK(pthread_join(thread_id, NULL) == 0, "join");
    }
    CHECK(next_descriptor() == before, "no descriptor stays open");
    return 0;
}
