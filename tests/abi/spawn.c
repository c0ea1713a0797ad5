/* vfork and exec, posix_spawn, system and popen while threads hammer the allocator. */
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>

#include "abi.h"

extern char **environ;
static int stop;

static void *hammer(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        unsigned char *p = malloc(random_size(&seed, 1, 400 * KIB));
        CHECK(p != NULL, "malloc");
        p[0] = 1;
        p = realloc(p, random_size(&seed, 1, 400 * KIB));
        CHECK(p != NULL && p[0] == 1, "realloc");
        free(p);
    }
    return NULL;
}

static void wait_for(pid_t child, int expected) {
    int status;
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == expected, "status %#x, expected exit %d", status, expected);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        /* What is spawned: a program on the allocator too. */
        for (int i = 0; i < 100; i++) free(realloc(malloc((size_t)i * 10), (size_t)i * 5000 + 1));
        return 42;
    }
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, hammer, (void *)(i + 1)) == 0, "thread");
    char *self[] = {argv[0], (char *)"again", NULL};
    for (int n = 0; n < 40; n++) {
        pid_t child = vfork();
        CHECK(child >= 0, "vfork");
        if (child == 0) {
            execv("/proc/self/exe", self);
            _exit(1);
        }
        wait_for(child, 42);
        free(malloc(1000));

        CHECK(posix_spawn(&child, "/proc/self/exe", NULL, NULL, self, environ) == 0, "posix_spawn");
        wait_for(child, 42);
        free(malloc(1000));

        /* A child that cannot exec and leaves: the parent's memory is as before. */
        child = vfork();
        CHECK(child >= 0, "vfork");
        if (child == 0) {
            execv("/nonexistent", self);
            _exit(7);
        }
        wait_for(child, 7);

        if (n % 8 == 0) {
            CHECK(system("exit 3") == 3 << 8, "system");
            FILE *pipe = popen("echo hello", "r");
            char line[64] = "";
            CHECK(pipe && fgets(line, sizeof line, pipe) && strcmp(line, "hello\n") == 0, "popen");
            CHECK(pclose(pipe) == 0, "pclose");
        }
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    return 0;
}
