/* realloc(p, 0) frees p and gives NULL, as glibc has it, or a minimal object; both must not leak. */
#include "abi.h"

int main(void) {
    for (int i = 0; i < 200000; i++) {
        void *p = malloc(i % 5 == 0 ? 300 * KIB : 1000);
        CHECK(p != NULL, "malloc");
        void *q = realloc(p, opaque(0));
        free(q);
    }
    size_t resident = resident_bytes();
    CHECK(resident < 256 * MIB, "%zu MiB resident: realloc(p, 0) leaks", resident / MIB);

    /* Programs for the C library below rely on NULL; other allocators have their own ways. */
    if (!on_spandrel()) return 0;
    void *p = malloc(64);
    CHECK(realloc(p, opaque(0)) == NULL, "realloc(p, 0) is not NULL as with glibc");
    p = malloc(64);
    CHECK(reallocarray(p, 0, 8) == NULL, "reallocarray(p, 0, 8) is not NULL as with glibc");
    return 0;
}
