/* Changes of a process's identity: "user", another user, with threads and with the memory that the library's thread looks
 * after; "namespace", a user namespace, which takes a process of one thread; "secure", started with more rights than
 * the user has. A kernel or a user that may not is no failure. */
#include <pthread.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/wait.h>

#include "abi.h"

static volatile int done;

static void *requests(void *unused) {
    while (!done) {
        free(malloc(1000));
        free(malloc(200 * KIB));
    }
    return unused;
}

static void use(size_t bytes) {
    static char *objects[4096];
    size_t count = bytes / (64 * KIB);
    for (size_t i = 0; i < count; i++) {
        objects[i] = malloc(64 * KIB);
        CHECK(objects[i], "malloc");
        memset(objects[i], 1, 64 * KIB);
    }
    for (size_t i = 0; i < count; i++) free(objects[i]);
}

int main(int count, char **words) {
    CHECK(count == 2, "arguments");
    if (!strcmp(words[1], "namespace")) {
        use(16 * MIB);
        if (unshare(CLONE_NEWUSER) != 0) CHECK(errno == EPERM || errno == ENOSPC || errno == ENOSYS, "unshare");
        use(128 * MIB);
        pid_t child = fork();
        if (child == 0) {
            use(128 * MIB);
            _exit(0);
        }
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "the child");
    } else if (!strcmp(words[1], "user")) {
        pthread_t threads[3];
        use(128 * MIB);
        for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, requests, NULL) == 0, "a thread");
        if (getuid() == 0) {
            CHECK(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0, "another user");
            CHECK(getuid() == 65534 && setuid(0) != 0, "the first user again");
        }
        use(128 * MIB);
        done = 1;
        for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    } else {
        printf("%s\n", getauxval(AT_SECURE) ? "secure" : "not secure");
        use(128 * MIB);
    }
    puts("ok");
}
