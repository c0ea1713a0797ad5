/* A signal handler forks while the program, which has one thread, is anywhere in malloc, realloc or free; parent and
 * child go on. glibc's own malloc allows it. */
#include <errno.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abi.h"

enum { FORKS = 400 };
static volatile sig_atomic_t forks;

static void handler(int signal) {
    (void)signal;
    int before = errno;
    pid_t child = fork();
    if (child == 0) _exit(7);
    int status = 0;
    if (child > 0) waitpid(child, &status, 0);
    CHECK(child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 7, "fork in a handler: status %#x", status);
    forks++;
    errno = before;
}

int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 500}, {0, 500}};
    setitimer(ITIMER_REAL, &often, NULL);
    size_t sizes[] = {100, 5000, 200000};
    for (int round = 0; forks < FORKS; round++) {
        size_t size = sizes[round % 3];
        unsigned char *object = malloc(size);
        CHECK(object != NULL, "malloc");
        fill_from(object, 0, 64, (uint64_t)round);
        object = realloc(object, size * 3);
        CHECK(object != NULL, "realloc");
        CHECK(first_difference(object, 0, 64, (uint64_t)round) == 64, "contents");
        free(object);
    }
    return 0;
}
