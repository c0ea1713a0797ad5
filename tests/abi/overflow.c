/* Sizes that cannot be, errno when memory is refused, errno left alone otherwise. */
#include "abi.h"

/* The objects that a refused call left alone are looked at afterwards, and rightly so. */
#pragma GCC diagnostic ignored "-Wuse-after-free"

static void refused(void *result, const char *what) {
    int seen = errno;
    CHECK(result == NULL, "%s gave %p", what, result);
    errno = seen;
    CHECK(errno == ENOMEM, "%s: errno", what);
    errno = 0;
}

static void impossible_sizes(void) {
    const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 15, SIZE_MAX - 4095, SIZE_MAX / 2 + 1,
                            (size_t)PTRDIFF_MAX + 1, (size_t)PTRDIFF_MAX, (size_t)1 << 62, (size_t)1 << 56};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t size = opaque(sizes[i]);
        errno = 0;
        refused(malloc(size), "malloc");
        refused(calloc(1, size), "calloc(1, huge)");
        refused(calloc(size, 1), "calloc(huge, 1)");
        refused(realloc(NULL, size), "realloc(NULL, huge)");
        refused(reallocarray(NULL, size, 1), "reallocarray(NULL, huge, 1)");
        refused(memalign(64, size), "memalign");
        refused(memalign(2 * MIB, size), "memalign(2 MiB)");
        refused(aligned_alloc(64, size & ~(size_t)63), "aligned_alloc");
        refused(valloc(size), "valloc");
        refused(pvalloc(size), "pvalloc");
        errno = 0;
        void *untouched = (void *)0x1234;
        int status = posix_memalign(&untouched, 64, size);
        CHECK(status == ENOMEM, "posix_memalign(64, %#zx) = %d", size, status);
    }
}

static void products_that_overflow(void) {
    const size_t pairs[][2] = {{SIZE_MAX, 2}, {2, SIZE_MAX}, {SIZE_MAX / 2 + 1, 2}, {(size_t)1 << 33, (size_t)1 << 33},
                               {(size_t)1 << 32, (size_t)1 << 32}, {SIZE_MAX, SIZE_MAX}, {SIZE_MAX / 16 + 2, 16}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        size_t count = opaque(pairs[i][0]), each = opaque(pairs[i][1]);
        errno = 0;
        refused(calloc(count, each), "calloc");
        refused(reallocarray(NULL, count, each), "reallocarray(NULL)");
        unsigned char *p = malloc(40);
        CHECK(p != NULL, "malloc(40)");
        fill_from(p, 0, 40, i);
        errno = 0;
        refused(reallocarray(p, count, each), "reallocarray");
        CHECK_PATTERN(p, 40, i);
        free(p);
    }
    /* A product with zero does not overflow. */
    void *p = calloc(0, opaque(SIZE_MAX));
    CHECK(p != NULL, "calloc(0, SIZE_MAX)");
    free(p);
}

static void refused_realloc_keeps_the_object(void) {
    const size_t sizes[] = {1, 100, 5000, 100 * KIB, 200 * KIB, 5 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *p = malloc(sizes[i]);
        CHECK(p != NULL, "malloc");
        fill_from(p, 0, sizes[i], 3);
        errno = 0;
        refused(realloc(p, opaque(SIZE_MAX)), "realloc(p, SIZE_MAX)");
        refused(realloc(p, opaque((size_t)PTRDIFF_MAX + 1)), "realloc(p, PTRDIFF_MAX + 1)");
        refused(realloc(p, opaque((size_t)1 << 58)), "realloc(p, 2^58)");
        CHECK_PATTERN(p, sizes[i], 3);
        free(p);
    }
}

/* POSIX.1-2024 asks it of free; users of the others rely on it when nothing fails. */
static void errno_is_left_alone(void) {
    uint64_t seed = 5;
    void *objects[512];
    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < 512; i++) {
            size_t size = random_size(&seed, 1, 4 * MIB);
            objects[i] = i % 7 == 0 ? memalign(4096, size % 65536 + 1) : malloc(size);
            CHECK(objects[i] != NULL, "malloc(%zu)", size);
        }
        for (int i = 0; i < 512; i++) {
            errno = 4711;
            free(objects[i]);
            CHECK(errno == 4711, "free changed errno");
        }
    }
    errno = 4711;
    free(NULL);
    CHECK(errno == 4711, "free(NULL) changed errno");
}

int main(void) {
    impossible_sizes();
    products_that_overflow();
    refused_realloc_keeps_the_object();
    errno_is_left_alone();
    return 0;
}
