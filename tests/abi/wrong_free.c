/* Gives something back that it must not, as the argument says. */
#define _GNU_SOURCE
#include <sched.h>
#include <sys/mman.h>

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
    } else if (strcmp(argv[1], "twice-later") == 0) {
        /* Many came back between, and it is asked for again before anybody counts. */
        char *more[20];
        for (int i = 0; i < 20; i++) CHECK(more[i] = malloc(size), "malloc");
        free(object);
        for (int i = 0; i < 20; i++) free(more[i]);
        free((char *)opaque((size_t)object));
        for (int i = 0; i < 22; i++) more[i % 20] = malloc(size);
    } else if (strcmp(argv[1], "all-twice") == 0) {
        /* As when a structure is taken down twice. */
        char *all[200];
        for (int i = 0; i < 200; i++) CHECK(all[i] = malloc(size), "malloc");
        for (int i = 0; i < 400; i++) free((char *)opaque((size_t)all[i % 200]));
    } else if (strcmp(argv[1], "before") == 0) {
        /* In the page of a neighbour. */
        free((char *)opaque((size_t)other - 64));
        malloc_trim(0);
    } else if (strcmp(argv[1], "twice-gone") == 0) {
        /* Its memory went back between. */
        free(object);
        free(other);
        malloc_trim(0);
        free((char *)opaque((size_t)object));
    } else if (strcmp(argv[1], "resized-gone") == 0) {
        free(object);
        free(other);
        malloc_trim(0);
        free(realloc((char *)opaque((size_t)object), 2 * size));
    } else if (strcmp(argv[1], "sized-gone") == 0) {
        free(object);
        free(other);
        malloc_trim(0);
        printf("%zu\n", malloc_usable_size((char *)opaque((size_t)object)));
    } else if (strcmp(argv[1], "resized-inside") == 0) {
        /* To a size for which no object has to move. */
        free(realloc((char *)opaque((size_t)object) + 64, size - 64));
    } else if (strcmp(argv[1], "sized-inside") == 0) {
        printf("%zu\n", malloc_usable_size((char *)opaque((size_t)object) + 64));
    } else if (strcmp(argv[1], "wild") == 0) {
        /* Where nobody has been yet. */
        free((char *)opaque((size_t)object) + (16ul << 30));
    } else if (strcmp(argv[1], "unmapped") == 0) {
        char *gone = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(gone != MAP_FAILED && munmap(gone, size) == 0, "mmap");
        free((char *)opaque((size_t)gone) + size / 2);
    } else if (strcmp(argv[1], "resized-unmapped") == 0) {
        free(realloc((char *)opaque(0xdeadbeef0), size));
    } else if (strcmp(argv[1], "misaligned") == 0) {
        free((char *)opaque((size_t)object) + 8);
    } else if (strcmp(argv[1], "inside") == 0) {
        free((char *)opaque((size_t)object) + (size < 100000 ? 16 : size / 2));
        if (size < 100000) malloc_trim(0);
    } else {
        CHECK(0, "%s is no way to be wrong", argv[1]);
    }
    puts("went on");
    return 0;
}
