/* realloc keeps contents: random walks of many objects between 16 B and 64 MiB, up and down. */
#include "abi.h"

#define OBJECTS 24

/* Large objects are checked at every page's first and last bytes and fully now and then. */
static void check(const unsigned char *p, size_t size, uint64_t seed, int fully) {
    if (fully || size <= 64 * KIB) {
        CHECK_PATTERN(p, size, seed);
        return;
    }
    for (size_t page = 0; page + 4096 <= size; page += 4096) {
        CHECK(first_difference(p, page, page + 16, seed) == page + 16, "%p of %zu: page at %zu", (const void *)p, size, page);
        CHECK(first_difference(p, page + 4080, page + 4096, seed) == page + 4096, "%p of %zu: end of page at %zu", (const void *)p, size, page);
    }
    CHECK(first_difference(p, size - 64, size, seed) == size, "%p of %zu: its end", (const void *)p, size);
}

static void grow_to(unsigned char **p, size_t *size, size_t wanted, uint64_t seed, int fully) {
    unsigned char *q = realloc(*p, wanted);
    CHECK(q != NULL, "realloc from %zu to %zu", *size, wanted);
    CHECK(is_aligned(q, 16), "realloc(%zu) = %p", wanted, (void *)q);
    CHECK(malloc_usable_size(q) >= wanted, "usable size");
    size_t kept = wanted < *size ? wanted : *size;
    check(q, kept, seed, fully);
    if (wanted > *size) fill_from(q, *size, wanted, seed);
    *p = q;
    *size = wanted;
}

static void doubling_and_halving(void) {
    unsigned char *p = NULL;
    size_t size = 0;
    for (int round = 0; round < 3; round++) {
        for (size_t wanted = 16; wanted <= 64 * MIB; wanted *= 2) grow_to(&p, &size, wanted + (size_t)round, 42, size <= MIB);
        for (size_t wanted = 64 * MIB; wanted >= 16; wanted /= 2) grow_to(&p, &size, wanted - (size_t)round, 42, wanted <= MIB);
    }
    free(p);
}

static void random_walks(void) {
    unsigned char *objects[OBJECTS] = {0};
    size_t sizes[OBJECTS] = {0};
    uint64_t seed = 2024;
    for (int step = 0; step < 6000; step++) {
        int i = (int)(next_random(&seed) % OBJECTS);
        size_t largest = i == 0 ? 64 * MIB : i < 4 ? 4 * MIB : 256 * KIB;
        if (i == 0 && step % 8) continue;
        size_t wanted;
        switch (next_random(&seed) % 5) {
        case 0: wanted = random_size(&seed, 16, largest); break;
        case 1: wanted = sizes[i] + 1 + next_random(&seed) % 4096; break;
        case 2: wanted = sizes[i] > 16 ? sizes[i] - next_random(&seed) % (sizes[i] / 2) : 16; break;
        case 3: wanted = sizes[i] * 2 + 16; break;
        default: wanted = sizes[i] ? sizes[i] : 16; /* the same size again */
        }
        if (wanted > largest) wanted = random_size(&seed, 16, largest);
        grow_to(&objects[i], &sizes[i], wanted, (uint64_t)i + 1, step % 16 == 0);
        if (next_random(&seed) % 40 == 0) {
            check(objects[i], sizes[i], (uint64_t)i + 1, 1);
            free(objects[i]);
            objects[i] = NULL;
            sizes[i] = 0;
        }
    }
    for (int i = 0; i < OBJECTS; i++) {
        check(objects[i], sizes[i], (uint64_t)i + 1, 1);
        free(objects[i]);
    }
}

/* Neighbours must not be hurt by an object that grows beside them. */
static void growing_between_neighbours(void) {
    enum { NEIGHBOURS = 32 };
    unsigned char *p[NEIGHBOURS] = {0};
    size_t size[NEIGHBOURS] = {0};
    for (size_t wanted = 1000; wanted < 2 * MIB; wanted = wanted * 5 / 4 + 77)
        for (int i = 0; i < NEIGHBOURS; i++) grow_to(&p[i], &size[i], wanted + (size_t)i * 13, (uint64_t)i, i % 8 == 0);
    for (int i = 0; i < NEIGHBOURS; i++) {
        CHECK_PATTERN(p[i], size[i], (uint64_t)i);
        free(p[i]);
    }
}

int main(void) {
    doubling_and_halving();
    random_walks();
    growing_between_neighbours();
    return 0;
}
