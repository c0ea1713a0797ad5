/* glibc-thread: random replacement in a small working set.
 *
 * After the description of bench-malloc-thread in glibc's benchtests. Stresses: the fast path with sizes
 * that change at every request. Each thread has 1024 objects and replaces one after the other at random
 * places; sizes from 4 to 32 768 bytes fall off with the square of the size, so that nearly all are tiny.
 *
 * Units: steps of each thread; objects of a thread. */
#include "program.h"

enum { SIZES = 65536, SMALLEST = 4, LARGEST = 32768 };
static uint64_t threads = 2, steps = 10000000, objects = 1024, seed = 1;
static uint32_t sizes[SIZES];

/* The distribution function of 1/x^2 between the limits, inverted. */
static void draw_sizes(void) {
    uint64_t random = mix(seed);
    for (int i = 0; i < SIZES; i++) {
        double share = uniform(&random), high = 1.0 / SMALLEST, low = 1.0 / LARGEST;
        sizes[i] = (uint32_t)(1.0 / (high - share * (high - low)));
    }
}

static void *work(void *argument) {
    uint64_t random = mix(seed + *(uint64_t *)argument + 1), sum = 0;
    struct ledger ledger = {0, 0};
    struct object *table = take_table(&ledger, objects, sizeof *table);
    for (uint64_t step = 0; step < steps; step++) {
        uint64_t draw = next_random(&random);
        struct object *slot = &table[((draw >> 32) * objects) >> 32];
        if (slot->at != NULL) give_object(&ledger, *slot);
        *slot = take_object(&ledger, sizes[draw % SIZES], (uint32_t)draw);
        sum += slot->size;
    }
    for (uint64_t i = 0; i < objects; i++)
        if (table[i].at != NULL) give_object(&ledger, table[i]);
    give_table(&ledger, table, objects, sizeof *table);
    close_ledger(&ledger, sum);
    return NULL;
}

int main(int argc, char **argv) {
    struct argument list[] = {
        {"threads", &threads, 1, THREADS_MAX, "threads"},
        {"steps", &steps, 1, UINT64_MAX, "objects that a thread replaces"},
        {"objects", &objects, 1, 1 << 24, "live objects of a thread"},
        {"seed", &seed, 0, UINT64_MAX, "of the random numbers"},
    };
    PARSE(argc, argv, "glibc-thread: random replacement, sizes by a power law", list);
    draw_sizes();
    run_numbered(threads, work);
    before_drain();
    return finish("glibc-thread", "");
}
