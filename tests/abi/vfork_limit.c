/* A child of `vfork` limits itself before it executes another program: what the parent has reserved stays. */
#include <sys/resource.h>
#include <sys/wait.h>

#include "abi.h"

static long mapped(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld", &pages) == 1, "statm");
    fclose(file);
    return pages;
}

int main(void) {
    char *objects[1000];
    for (int i = 0; i < 1000; i++) {
        objects[i] = malloc(5000);
    }
    long before = mapped();
    struct rlimit limit = {2 * GIB, RLIM_INFINITY};
    pid_t child = vfork();
    if (child == 0) {
        int failed = setrlimit(RLIMIT_AS, &limit);
        _exit(failed ? 1 : 0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the child");
    long after = mapped();
    CHECK(after >= before, "the parent has fewer reservations");
    for (int i = 0; i < 1000; i++) {
        free(objects[i]);
    }
    return 0;
}
