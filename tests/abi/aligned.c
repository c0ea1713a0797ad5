/* memalign, aligned_alloc, posix_memalign, valloc, pvalloc: every alignment to 1 GiB, contents, realloc. */
#include "abi.h"

static void *allocate(int how, size_t alignment, size_t size) {
    void *p = NULL;
    switch (how) {
    case 0: return memalign(alignment, size);
    case 1: return aligned_alloc(alignment, size);
    default:
        if (alignment < sizeof(void *)) return memalign(alignment, size);
        errno = posix_memalign(&p, alignment, size);
        return errno ? NULL : p;
    }
}

static void every_alignment(void) {
    const size_t sizes[] = {0, 1, 8, 24, 100, 1000, 4096, 5000, 40000, 128 * KIB, 200000, 1 * MIB + 1, 3 * MIB};
    for (size_t alignment = 1; alignment <= GIB; alignment *= 2) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            for (int how = 0; how < 3; how++) {
                if (how == 1 && alignment > 64 * KIB && i % 3) continue;
                unsigned char *p[3];
                for (int k = 0; k < 3; k++) {
                    p[k] = allocate(how, alignment, sizes[i]);
                    CHECK(p[k] != NULL, "form %d, alignment %zu, size %zu", how, alignment, sizes[i]);
                    CHECK(is_aligned(p[k], alignment), "form %d, alignment %zu, size %zu: %p", how, alignment, sizes[i], (void *)p[k]);
                    CHECK(is_aligned(p[k], 8), "form %d, size %zu: %p", how, sizes[i], (void *)p[k]);
                    size_t usable = malloc_usable_size(p[k]);
                    CHECK(usable >= sizes[i], "usable %zu", usable);
                    /* To the last usable byte where that is affordable. */
                    fill_from(p[k], 0, usable < 8 * MIB ? usable : sizes[i], alignment + (size_t)k);
                }
                for (int k = 0; k < 3; k++) {
                    CHECK_PATTERN(p[k], sizes[i], alignment + (size_t)k);
                    free(p[k]);
                }
            }
        }
    }
}

static void realloc_of_aligned_objects(void) {
    for (size_t alignment = 16; alignment <= 64 * MIB; alignment *= 4) {
        for (size_t size = 1; size <= 2 * MIB; size *= 7) {
            unsigned char *p = memalign(alignment, size);
            CHECK(p != NULL, "memalign(%zu, %zu)", alignment, size);
            fill_from(p, 0, size, size);
            size_t grown = size * 3 + 100;
            p = realloc(p, grown);
            CHECK(p != NULL && is_aligned(p, 16), "realloc(memalign(%zu, %zu), %zu) = %p", alignment, size, grown, (void *)p);
            CHECK_PATTERN(p, size, size);
            fill_from(p, 0, grown, size);
            p = realloc(p, size / 2 + 1);
            CHECK(p != NULL, "shrink");
            CHECK_PATTERN(p, size / 2 + 1, size);
            free(p);
        }
    }
}

static void bad_alignments_of_posix_memalign(void) {
    const size_t bad[] = {0, 1, 2, 4, 3, 5, 12, 24, 100, 4095, 4097, SIZE_MAX, (size_t)3 << 40};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        void *untouched = (void *)0x1234;
        errno = 4711;
        int status = posix_memalign(&untouched, opaque(bad[i]), 100);
        CHECK(status == EINVAL, "posix_memalign(alignment %zu) = %d", bad[i], status);
        CHECK(untouched == (void *)0x1234, "posix_memalign(alignment %zu) wrote its result", bad[i]);
    }
    /* The result is returned; errno is not how posix_memalign speaks. */
    void *p = NULL;
    CHECK(posix_memalign(&p, sizeof(void *), 100) == 0 && p != NULL, "the smallest alignment");
    free(p);
}

static void huge_alignments_are_refused_or_right(void) {
    for (size_t alignment = 2 * GIB; alignment != 0; alignment *= 2) {
        void *p = NULL;
        int status = posix_memalign(&p, opaque(alignment), 100);
        CHECK(status == 0 || status == ENOMEM || status == EINVAL, "alignment %zu: %d", alignment, status);
        if (status == 0) {
            CHECK(is_aligned(p, alignment), "alignment %zu: %p", alignment, p);
            memset(p, 1, 100);
            free(p);
        }
    }
}

static void pages(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t size = 0; size < 70000; size += 1111) {
        unsigned char *v = valloc(size), *w = pvalloc(size);
        CHECK(v != NULL && is_aligned(v, page), "valloc(%zu) = %p", size, (void *)v);
        CHECK(w != NULL && is_aligned(w, page), "pvalloc(%zu) = %p", size, (void *)w);
        size_t whole = (size + page - 1) / page * page;
        CHECK(malloc_usable_size(v) >= size, "valloc(%zu)", size);
        CHECK(malloc_usable_size(w) >= whole, "pvalloc(%zu): usable %zu", size, malloc_usable_size(w));
        fill_from(v, 0, size, 1);
        fill_from(w, 0, whole, 2);
        CHECK_PATTERN(v, size, 1);
        free(v);
        free(w);
    }
}

int main(void) {
    every_alignment();
    realloc_of_aligned_objects();
    bad_alignments_of_posix_memalign();
    huge_alignments_are_refused_or_right();
    pages();
    return 0;
}
