/* A process that may not read the processor's counter of ticks any more goes on: "tsc", by prctl, "strict", by the strict mode of seccomp, which ends it at its exit. */
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "abi.h"

enum { OBJECTS = 200000 };

static char *objects[OBJECTS];

static void allocate(size_t bytes) {
    for (int i = 0; i < OBJECTS; i++) {
        free(objects[i]);
        objects[i] = malloc(bytes);
        CHECK(objects[i], "malloc");
        objects[i][0] = 1;
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 2, "which way?");
    pid_t child = fork();
    if (child == 0) {
        allocate(600);
        /* What works beside the program is there, if anything is. */
        usleep(300000);
        if (strcmp(argv[1], "tsc") == 0) {
            CHECK(prctl(PR_SET_TSC, PR_TSC_SIGSEGV) == 0, "prctl");
            allocate(700);
            _exit(0);
        }
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0, "prctl");
        syscall(SYS_exit, 0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %x", status);
    return 0;
}
