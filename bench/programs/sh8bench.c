/* sh8bench: like sh6bench, with batches that change hands.
 *
 * After the description of MicroQuill's SmartHeap benchmark of that name. Stresses: objects freed by other
 * threads, in both orders, among objects that stay at home. Of every four runs that a thread allocates it
 * leaves one on a shelf that all threads share, and takes and frees what lay there before.
 *
 * Units: sizes in bytes; runs of 32 objects per pass; passes of each thread. */
#include "program.h"

enum { RUN = 32, SHELF = 64 };
static uint64_t threads = 2, passes = 60, runs = 500, min_size = 1, max_size = 1000, seed = 1;

struct run {
    struct object objects[RUN];
};

static struct run *shelf[SHELF];

static void take_run(struct ledger *ledger, struct run *run, uint64_t *random) {
    uint32_t one = between(random, (uint32_t)min_size, (uint32_t)max_size);
    uint32_t other = between(random, (uint32_t)min_size, (uint32_t)max_size);
    uint32_t size = one < other ? one : other, tag = (uint32_t)next_random(random);
    for (uint32_t i = 0; i < RUN; i++) run->objects[i] = take_object(ledger, size, tag + i);
}

/* The sum of what was freed, which is the same whoever frees it. */
static uint64_t give_run(struct ledger *ledger, struct run *run, bool backwards) {
    for (uint32_t i = 0; i < RUN; i++) give_object(ledger, run->objects[backwards ? RUN - 1 - i : i]);
    return run->objects[0].tag + (uint64_t)run->objects[0].size;
}

static void *work(void *argument) {
    uint64_t random = mix(seed + *(uint64_t *)argument), sum = 0;
    struct ledger ledger = {0, 0};
    struct run *table = take_table(&ledger, runs, sizeof *table);
    for (uint64_t pass = 0; pass < passes; pass++) {
        for (uint64_t i = 0; i < runs; i++) {
            if (i % 4 != 0) {
                take_run(&ledger, &table[i], &random);
                continue;
            }
            struct run *guest = take_table(&ledger, 1, sizeof *guest);
            take_run(&ledger, guest, &random);
            guest = __atomic_exchange_n(&shelf[below(&random, SHELF)], guest, __ATOMIC_ACQ_REL);
            if (guest != NULL) {
                sum += give_run(&ledger, guest, i % 8 == 0);
                give_table(&ledger, guest, 1, sizeof *guest);
            }
        }
        for (uint64_t i = 0; i < runs; i++)
            if (i % 4 != 0) sum += give_run(&ledger, &table[i], i % 2 == 0);
    }
    give_table(&ledger, table, runs, sizeof *table);
    close_ledger(&ledger, sum);
    return NULL;
}

int main(int argc, char **argv) {
    struct argument list[] = {
        {"threads", &threads, 1, THREADS_MAX, "threads"},
        {"passes", &passes, 1, UINT32_MAX, "passes of each thread"},
        {"runs", &runs, 1, 1000000, "runs of 32 objects in a pass"},
        {"min", &min_size, 1, 1 << 20, "smallest size"},
        {"max", &max_size, 1, 1 << 20, "largest size"},
        {"seed", &seed, 0, UINT64_MAX, "of the random numbers"},
    };
    PARSE(argc, argv, "sh8bench: batches freed in either order, some by other threads", list);
    CHECK(min_size <= max_size, "min is larger than max");
    run_numbered(threads, work);
    uint64_t sum = 0;
    before_drain();
    struct ledger ledger = {0, 0};
    for (int i = 0; i < SHELF; i++) {
        if (shelf[i] == NULL) continue;
        sum += give_run(&ledger, shelf[i], false);
        give_table(&ledger, shelf[i], 1, sizeof *shelf[i]);
    }
    close_ledger(&ledger, sum);
    return finish("sh8bench", "");
}
