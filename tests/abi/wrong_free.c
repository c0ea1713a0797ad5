/* Gives something back that it must not, as the argument says. */
#define _GNU_SOURCE
#include <sched.h>

#include "abi.h"

int main(int argc, char **argv) {
    CHECK(argc == 3, "usage: wrong_free HOW SIZE");
    /* Twice in a row is seen at once where both frees are on one processor. */
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    CHECK(sched_setaffinity(0, sizeof here, &here) == 0, "affinity");
    size_t size = strtoul(argv[2], NULL, 10);
    char *object = malloc(size), *other = malloc(size);
    CHECK(object && other, "malloc");
    if (strcmp(argv[1], "twice") == 0) {
        free(object);
        free((char *)opaque((size_t)object));
    } else if (strcmp(argv[1], "twice-soon") == 0) {
        /* Another came back between. */
        free(object);
        free(other);
        free((char *)opaque((size_t)object));
    } else if (strcmp(argv[1], "twice-apart") == 0) {
        /* Detected when both have come back to where objects are counted. */
        char *more[20];
        for (int i = 0; i < 20; i++) CHECK(more[i] = malloc(size), "malloc");
        free(object);
        for (int i = 0; i < 20; i++) free(more[i]);
        free((char *)opaque((size_t)object));
        malloc_trim(0);
    } else if (strcmp(argv[1], "misaligned") == 0) {
        free((char *)opaque((size_t)object) + 8);
    } else if (strcmp(argv[1], "inside") == 0) {
        free((char *)opaque((size_t)object) + 16);
        if (size < 100000) malloc_trim(0);
    } else {
        CHECK(0, "%s is no way to be wrong", argv[1]);
    }
    puts("went on");
    return 0;
}
