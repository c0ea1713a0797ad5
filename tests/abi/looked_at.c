/* Has a heap of a few megabytes, says so, and waits to be looked at. "fork": a child of it does, which has done
 * nothing itself yet; it says its number. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void *objects[4000];

int main(int count, char **words) {
    /* Where only parents may look at others. */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    for (int i = 0; i < 4000; i++) {
        objects[i] = malloc(1000);
        if (objects[i] == NULL) {
            return 1;
        }
        memset(objects[i], i, 1000);
    }
    if (count > 1 && strcmp(words[1], "fork") == 0) {
        pid_t child = fork();
        if (child > 0) {
            int status;
            return waitpid(child, &status, 0) != child;
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        dprintf(2, "child %d ", getpid());
    }
    dprintf(2, "ready\n");
    alarm(60);
    pause();
    return 0;
}
