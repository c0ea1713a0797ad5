/* malloc, calloc, realloc, reallocarray, free: sizes, alignment, zeroes, distinctness. */
#include "abi.h"

#define MANY 4096

static void every_size_is_aligned_and_writable(void) {
    for (size_t size = 0; size <= 70000; size = size < 2048 ? size + 1 : size + 509) {
        unsigned char *p = malloc(size);
        CHECK(p != NULL, "malloc(%zu)", size);
        CHECK(is_aligned(p, 16), "malloc(%zu) = %p", size, (void *)p);
        size_t usable = malloc_usable_size(p);
        CHECK(usable >= size, "usable size %zu of %zu", usable, size);
        fill_from(p, 0, usable, size);
        CHECK_PATTERN(p, usable, size);
        free(p);
    }
}

static void zero_sizes_are_distinct_objects(void) {
    void *objects[64];
    for (int i = 0; i < 64; i++) {
        objects[i] = i % 2 ? malloc(0) : calloc(0, 7);
        CHECK(objects[i] != NULL, "zero size");
        for (int j = 0; j < i; j++) CHECK(objects[i] != objects[j], "malloc(0) gave %p twice", objects[i]);
    }
    for (int i = 0; i < 64; i++) free(objects[i]);
    free(NULL);
}

static void live_objects_do_not_overlap(void) {
    static unsigned char *objects[MANY];
    static size_t sizes[MANY];
    uint64_t seed = 7;
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < MANY; i++) {
            if (objects[i]) {
                CHECK_PATTERN(objects[i], sizes[i], (uint64_t)i);
                if (next_random(&seed) % 3 == 0) continue;
                free(objects[i]);
            }
            sizes[i] = random_size(&seed, 1, 16 * KIB);
            objects[i] = malloc(sizes[i]);
            CHECK(objects[i] != NULL, "malloc(%zu)", sizes[i]);
            fill_from(objects[i], 0, sizes[i], (uint64_t)i);
        }
    }
    for (int i = 0; i < MANY; i++) {
        CHECK_PATTERN(objects[i], sizes[i], (uint64_t)i);
        free(objects[i]);
    }
}

static void calloc_is_zero_where_dirt_was(void) {
    uint64_t seed = 11;
    for (int round = 0; round < 2000; round++) {
        size_t size = random_size(&seed, 1, round % 50 == 0 ? 8 * MIB : 64 * KIB);
        unsigned char *dirty = malloc(size);
        CHECK(dirty != NULL, "malloc(%zu)", size);
        memset(dirty, 0xa5, malloc_usable_size(dirty));
        free(dirty);
        size_t count = 1 + next_random(&seed) % 8;
        size_t each = size / count;
        unsigned char *clean = calloc(count, each);
        CHECK(clean != NULL, "calloc(%zu, %zu)", count, each);
        CHECK(is_aligned(clean, 16), "calloc(%zu, %zu) = %p", count, each, (void *)clean);
        for (size_t i = 0; i < count * each; i++)
            CHECK(clean[i] == 0, "calloc(%zu, %zu): byte %zu is %#x", count, each, i, clean[i]);
        memset(clean, 0x5a, malloc_usable_size(clean));
        free(clean);
    }
}

static void realloc_and_reallocarray(void) {
    unsigned char *p = realloc(NULL, 100);
    CHECK(p != NULL, "realloc(NULL, 100)");
    fill_from(p, 0, 100, 1);
    p = realloc(p, 1000);
    CHECK(p != NULL, "grow");
    CHECK_PATTERN(p, 100, 1);
    fill_from(p, 0, 1000, 1);
    p = reallocarray(p, 50, 1000);
    CHECK(p != NULL, "reallocarray");
    CHECK_PATTERN(p, 1000, 1);
    p = realloc(p, 10);
    CHECK(p != NULL, "shrink");
    CHECK_PATTERN(p, 10, 1);
    free(p);
    p = reallocarray(NULL, 3, 5);
    CHECK(p != NULL && is_aligned(p, 16), "reallocarray(NULL, 3, 5)");
    free(p);
    p = realloc(NULL, 0);
    CHECK(p != NULL, "realloc(NULL, 0) is malloc(0)");
    free(p);
}

int main(void) {
    every_size_is_aligned_and_writable();
    zero_sizes_are_distinct_objects();
    live_objects_do_not_overlap();
    calloc_is_zero_where_dirt_was();
    realloc_and_reallocarray();
    return 0;
}
