/* Breaks huge pages and fills them again, so that they are to be made whole, which the kernel refuses if asked
 * to (an argument). Ends when there were attempts, or after half a minute. */
#include <stdint.h>
#include <sys/prctl.h>

#include "abi.h"

#define OBJECTS 131072

static void *objects[OBJECTS];

static uint64_t figure(const char *name) {
    int (*ask)(const char *, uint64_t *) =
        (int (*)(const char *, uint64_t *))dlsym(RTLD_DEFAULT, "spandrel_figure");
    uint64_t value = 0;
    CHECK(ask != NULL && ask(name, &value) == 0, "%s", name);
    return value;
}

int main(int argc, char **argv) {
    (void)argv;
    for (int round = 0; round < 300; round++) {
        for (int i = 0; i < OBJECTS; i++) {
            if (objects[i] == NULL) {
                objects[i] = malloc(1000);
                memset(objects[i], 1, 1000);
            }
        }
        if (argc > 1) CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0, "prctl");
        if (figure("collapse_attempts") >= 3) break;
        for (int i = 0; i < OBJECTS; i++) {
            if (i / 64 % 8 != 0) {
                free(objects[i]);
                objects[i] = NULL;
            }
        }
        malloc_trim(0);
        usleep(100000);
    }
    return 0;
}
