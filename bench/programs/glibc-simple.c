/* glibc-simple: batches of one size, allocated and freed in order.
 *
 * After the description of bench-malloc-simple in glibc's benchtests. Stresses: the length of the fast
 * path, and what follows when a batch is longer than a cache of the thread. Batches of 25, 100, 400 and
 * 1600 objects; in the first thread while there is no other, in a second thread, and in the first again,
 * now that the process has had threads.
 *
 * Units: size in bytes; objects per batch length and scenario. */
#include "program.h"

enum { LONGEST = 1600 };
static const uint64_t lengths[] = {25, 100, 400, LONGEST};
static uint64_t objects = 2000000, size = 64, seed = 1;

static void *work(void *argument) {
    uint32_t tag = (uint32_t)mix(seed + *(uint64_t *)argument);
    struct ledger ledger = {0, 0};
    struct object *table = take_table(&ledger, LONGEST, sizeof *table);
    for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
        for (uint64_t done = 0; done < objects; done += lengths[l]) {
            for (uint64_t i = 0; i < lengths[l]; i++) table[i] = take_object(&ledger, (uint32_t)size, tag++);
            for (uint64_t i = 0; i < lengths[l]; i++) give_object(&ledger, table[i]);
        }
    }
    give_table(&ledger, table, LONGEST, sizeof *table);
    close_ledger(&ledger, tag);
    return NULL;
}

int main(int argc, char **argv) {
    struct argument list[] = {
        {"objects", &objects, 1, UINT32_MAX, "objects of each batch length and scenario"},
        {"size", &size, 1, 1 << 20, "size of an object"},
        {"seed", &seed, 0, UINT64_MAX, "of the random numbers"},
    };
    PARSE(argc, argv, "glibc-simple: batches of one size", list);
    uint64_t numbers[] = {0, 1, 2};
    work(&numbers[0]);
    run_threads(1, work, &numbers[1], sizeof numbers[0]);
    work(&numbers[2]);
    before_drain();
    return finish("glibc-simple", "");
}
