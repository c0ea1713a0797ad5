/* The library of dlopen.c: allocates in its constructor and destructor, has thread-local storage. */
#include "abi.h"

static unsigned char *from_load;
static __thread unsigned char scratch[2000];

__attribute__((constructor)) static void load(void) {
    from_load = malloc(300 * KIB);
    fill_from(from_load, 0, 300 * KIB, 9);
}

__attribute__((destructor)) static void unload(void) {
    CHECK_PATTERN(from_load, 300 * KIB, 9);
    from_load = realloc(from_load, 600 * KIB);
    CHECK_PATTERN(from_load, 300 * KIB, 9);
    free(from_load);
    free(malloc(123));
}

unsigned char *library_make(size_t size, uint64_t seed);
unsigned char *library_make(size_t size, uint64_t seed) {
    unsigned char *p = malloc(size);
    CHECK(p != NULL, "malloc");
    fill_from(scratch, 0, sizeof scratch, seed);
    for (size_t i = 0; i < size; i++) p[i] = i < sizeof scratch ? scratch[i] : pattern_byte(seed, i);
    return p;
}

void library_take(unsigned char *p, size_t size, uint64_t seed);
void library_take(unsigned char *p, size_t size, uint64_t seed) {
    CHECK_PATTERN(p, size, seed);
    free(p);
}
