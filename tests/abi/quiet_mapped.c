/* Large objects are given back, and then the program does nothing: what was kept of them goes back too. Prints how many
 * MiB are resident before and after, beside the objects that live. */
#include "abi.h"

#include <time.h>

int main(void) {
    char *kept[16], *freed[8];
    for (int i = 0; i < 16; i++) {
        kept[i] = malloc(32 * MIB);
        memset(kept[i], 1, 32 * MIB);
    }
    for (int i = 0; i < 8; i++) {
        freed[i] = malloc(8 * MIB);
        memset(freed[i], 1, 8 * MIB);
    }
    for (int i = 0; i < 8; i++) {
        free(freed[i]);
    }
    size_t before = resident() / MIB;
    struct timespec quiet = {.tv_sec = 5};
    nanosleep(&quiet, NULL);
    printf("%zd %zd\n", (ssize_t)before - 512, (ssize_t)(resident() / MIB) - 512);
    for (int i = 0; i < 16; i++) {
        free(kept[i]);
    }
    return 0;
}
