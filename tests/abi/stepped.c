/* A program whose every instruction is executed by itself, as debuggers do for software watchpoints and when they
 * record: it is interrupted after each. Afterwards it goes on at full speed. */
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "abi.h"

enum { OBJECTS = 64, MOST_STEPS = 3000000 };

static void some_requests(uint64_t seed, int rounds) {
    void *objects[OBJECTS] = {0};
    size_t sizes[OBJECTS] = {0};
    for (int i = 0; i < rounds; i++) {
        int at = (int)(next_random(&seed) % OBJECTS);
        CHECK(!objects[at] || *(size_t *)objects[at] == sizes[at], "an object was overwritten");
        if (i % 3 == 0 && objects[at]) {
            objects[at] = realloc(objects[at], 2 * sizes[at]);
        } else {
            free(objects[at]);
            sizes[at] = random_size(&seed, 8, 2000);
            objects[at] = malloc(sizes[at]);
        }
        *(size_t *)objects[at] = sizes[at];
    }
    for (int i = 0; i < OBJECTS; i++) free(objects[i]);
}

int main(void) {
    /* Some allocators serve a process differently when it is young. */
    for (int i = 0; i < 3000; i++) CHECK(malloc(300), "malloc");
    some_requests(1, 10000);
    pid_t child = fork();
    if (child == 0) {
        CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0, "ptrace");
        raise(SIGSTOP);
        some_requests(2, 300);
        raise(SIGSTOP);
        some_requests(3, 100000);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status), "the first stop");
    long steps = 0;
    do {
        CHECK(++steps < MOST_STEPS, "it does not get through");
        CHECK(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) == 0, "step %ld", steps);
        CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status), "step %ld: status %x", steps, status);
    } while (WSTOPSIG(status) == SIGTRAP);
    CHECK(WSTOPSIG(status) == SIGSTOP, "signal %d", WSTOPSIG(status));
    CHECK(ptrace(PTRACE_CONT, child, NULL, NULL) == 0, "continue");
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %x", status);
    printf("%ld steps\n", steps);
}
