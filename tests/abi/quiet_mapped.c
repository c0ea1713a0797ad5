/* Large objects are given back, and then the program does nothing: what was kept of them goes back too. Prints how many
 * MiB are resident before and after, beside the objects that live. */
#include "abi.h"

#include <fcntl.h>
#include <time.h>

static long resident(void) {
    char text[128] = {0};
    long total = 0, pages = 0;
    int file = open("/proc/self/statm", O_RDONLY);
    CHECK(file >= 0 && read(file, text, sizeof text - 1) > 0, "statm");
    close(file);
    CHECK(sscanf(text, "%ld %ld", &total, &pages) == 2, "statm");
    return pages * 4 / 1024;
}

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
    long before = resident();
    struct timespec quiet = {.tv_sec = 5};
    nanosleep(&quiet, NULL);
    printf("%ld %ld\n", before - 512, resident() - 512);
    for (int i = 0; i < 16; i++) {
        free(kept[i]);
    }
    return 0;
}
