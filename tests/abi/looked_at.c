/* Has a heap of a few megabytes, says so, and waits to be looked at. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static void *objects[4000];

int main(void) {
    /* Where only parents may look at others. */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    for (int i = 0; i < 4000; i++) {
        objects[i] = malloc(1000);
        if (objects[i] == NULL) {
            return 1;
        }
        memset(objects[i], i, 1000);
    }
    fputs("ready\n", stderr);
    alarm(60);
    pause();
    return 0;
}
