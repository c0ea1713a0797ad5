/* Objects of one size begin at different lines of a page: or a program that walks through the rows of a matrix by
 * columns would find all it needs in the few places of a cache that belong to one line. What is to be aligned is. */
#include "abi.h"

enum { COUNT = 1000, LINES = 64 };

static void check_size(size_t size) {
    static char *objects[COUNT];
    int begin[LINES] = {0}, most = 0;
    for (int i = 0; i < COUNT; i++) {
        objects[i] = malloc(size);
        CHECK(objects[i] != NULL, "object %d of %zu bytes", i, size);
        int line = (int)((uintptr_t)objects[i] % 4096 / 64);
        if (++begin[line] > most) most = begin[line];
    }
    CHECK(most <= COUNT / 5, "%d of %d objects of %zu bytes begin at the same line of a page", most, COUNT, size);
    for (int i = 0; i < COUNT; i++) free(objects[i]);
}

/* The same object through its life: where it begins is its own, whatever its size is. */
static void check_life(size_t size) {
    static unsigned char *objects[COUNT];
    for (int i = 0; i < COUNT; i++) {
        objects[i] = malloc(size);
        CHECK(objects[i] != NULL && is_aligned(objects[i], 16), "object %d", i);
        size_t usable = malloc_usable_size(objects[i]);
        CHECK(usable >= size, "%zu bytes of %zu", usable, size);
        fill_from(objects[i], 0, usable, (uint64_t)i);
    }
    for (int i = 0; i < COUNT; i++) {
        size_t usable = malloc_usable_size(objects[i]);
        CHECK_PATTERN(objects[i], usable, (uint64_t)i);
        if (i % 3 == 0) {
            size_t larger = size * (size_t)(2 + i % 5) + (size_t)i;
            objects[i] = realloc(objects[i], larger);
            CHECK(objects[i] != NULL, "growing object %d", i);
            CHECK_PATTERN(objects[i], usable, (uint64_t)i);
            usable = malloc_usable_size(objects[i]);
            CHECK(usable >= larger, "%zu bytes of %zu", usable, larger);
            fill_from(objects[i], 0, usable, (uint64_t)i);
        } else if (i % 3 == 1) {
            objects[i] = realloc(objects[i], size / 3);
            CHECK(objects[i] != NULL, "shrinking object %d", i);
            CHECK_PATTERN(objects[i], size / 3, (uint64_t)i);
            fill_from(objects[i], 0, malloc_usable_size(objects[i]), (uint64_t)i);
        }
    }
    for (int i = 0; i < COUNT; i++) {
        CHECK_PATTERN(objects[i], malloc_usable_size(objects[i]), (uint64_t)i);
        free(objects[i]);
    }
}

static void check_alignment(size_t align, size_t size) {
    static void *objects[COUNT];
    for (int i = 0; i < COUNT / 10; i++) {
        CHECK(posix_memalign(&objects[i], align, size) == 0, "%zu bytes aligned to %zu", size, align);
        CHECK(is_aligned(objects[i], align), "%p for %zu", objects[i], align);
        fill_from(objects[i], 0, malloc_usable_size(objects[i]), (uint64_t)i);
    }
    for (int i = 0; i < COUNT / 10; i++) {
        CHECK_PATTERN(objects[i], malloc_usable_size(objects[i]), (uint64_t)i);
        free(objects[i]);
    }
}

/* The sizes from `from` on are looked at: what is page-mapped below 64 KiB has whole pages. */
int main(int argc, char **argv) {
    size_t from = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    /* Of exactly a class, in the native allocator: without room for lines. */
    const size_t whole[] = {4096, 8192, 16384, 32768, 65536, 131072, 262144};
    const size_t sizes[] = {2500, 3000, 5000, 6000, 14000, 40000, 100000, 160000, 300000, 400000};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) check_life(whole[i]);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (on_spandrel() && sizes[i] >= from) check_size(sizes[i]);
        check_life(sizes[i]);
        for (size_t align = 64; align <= 256 * KIB; align *= 4) check_alignment(align, sizes[i]);
    }
    return 0;
}
