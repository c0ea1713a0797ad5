/* free_sized and free_aligned_sized of C23, which this C library's headers do not have yet; cfree. */
#include "abi.h"

typedef void (*free_sized_fn)(void *, size_t);
typedef void (*free_aligned_sized_fn)(void *, size_t, size_t);
typedef void (*cfree_fn)(void *);

int main(void) {
    free_sized_fn sized = (free_sized_fn)dlsym(RTLD_DEFAULT, "free_sized");
    free_aligned_sized_fn aligned = (free_aligned_sized_fn)dlsym(RTLD_DEFAULT, "free_aligned_sized");
    cfree_fn cfree_function = (cfree_fn)dlsym(RTLD_DEFAULT, "cfree");
    if (!on_spandrel()) return 0;
    CHECK(sized != NULL, "no free_sized");
    CHECK(aligned != NULL, "no free_aligned_sized");
    CHECK(cfree_function != NULL, "no cfree");

    sized(NULL, 0);
    sized(NULL, 100);
    aligned(NULL, 64, 128);
    cfree_function(NULL);
    uint64_t seed = 3;
    size_t before = resident_bytes();
    for (int i = 0; i < 100000; i++) {
        size_t size = random_size(&seed, 1, i % 100 == 0 ? 4 * MIB : 8 * KIB);
        size_t alignment = (size_t)16 << (next_random(&seed) % 9);
        void *p;
        switch (i % 5) {
        case 0: p = malloc(size); break;
        case 1: p = calloc(1, size); break;
        case 2: p = realloc(malloc(size / 2 + 1), size); break;
        case 3: p = malloc(size); break;
        default:
            size = (size + alignment - 1) / alignment * alignment;
            p = aligned_alloc(alignment, size);
        }
        CHECK(p != NULL, "size %zu", size);
        memset(p, 1, size);
        errno = 4711;
        if (i % 5 == 3) cfree_function(p);
        else if (i % 5 == 4) aligned(p, alignment, size);
        else sized(p, size);
        CHECK(errno == 4711, "a sized free changed errno");
    }
    size_t after = resident_bytes();
    CHECK(after < before + 256 * MIB, "resident memory grew from %zu to %zu MiB", before / MIB, after / MIB);
    return 0;
}
