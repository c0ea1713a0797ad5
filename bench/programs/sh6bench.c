/* sh6bench: batches freed partly in one order, partly in the other.
 *
 * After the description of MicroQuill's SmartHeap benchmark of that name. Stresses: short-lived small
 * objects of all sizes, runs of one size at a time, small sizes more often; half of the runs are freed
 * last-allocated first, half in the order of allocation; of every eighth run each second object lives on
 * through the next pass, so that the holes that it leaves are used again. Threads share nothing.
 *
 * Units: sizes in bytes; runs of 32 objects per pass; passes of each thread. */
#include "program.h"

enum { RUN = 32, KEPT_MAX = RUN / 2 };
static uint64_t threads = 1, passes = 60, runs = 1000, min_size = 1, max_size = 1000, seed = 1;

static void *work(void *argument) {
    uint64_t random = mix(seed + *(uint64_t *)argument), sum = 0;
    struct ledger ledger = {0, 0};
    uint64_t kept_count = 0, kept_max = (runs / 8 + 1) * KEPT_MAX;
    struct object *table = take_table(&ledger, runs * RUN, sizeof *table);
    struct object *kept = take_table(&ledger, kept_max, sizeof *kept);
    for (uint64_t pass = 0; pass < passes; pass++) {
        for (uint64_t run = 0; run < runs; run++) {
            /* The smaller of two numbers: small sizes come more often. */
            uint32_t one = between(&random, (uint32_t)min_size, (uint32_t)max_size);
            uint32_t other = between(&random, (uint32_t)min_size, (uint32_t)max_size);
            uint32_t size = one < other ? one : other, tag = (uint32_t)next_random(&random);
            for (uint32_t i = 0; i < RUN; i++) table[run * RUN + i] = take_object(&ledger, size, tag + i);
            sum += size;
        }
        while (kept_count > 0) give_object(&ledger, kept[--kept_count]);
        for (uint64_t run = 0; run < runs; run++) {
            struct object *first = table + run * RUN;
            if (run % 8 == 0) {
                for (uint32_t i = 0; i < RUN; i++) {
                    if (i % 2 == 0) kept[kept_count++] = first[i];
                    else give_object(&ledger, first[i]);
                }
            } else if (run % 2 == 0) {
                for (uint32_t i = RUN; i-- > 0;) give_object(&ledger, first[i]);
            } else {
                for (uint32_t i = 0; i < RUN; i++) give_object(&ledger, first[i]);
            }
        }
    }
    while (kept_count > 0) give_object(&ledger, kept[--kept_count]);
    give_table(&ledger, kept, kept_max, sizeof *kept);
    give_table(&ledger, table, runs * RUN, sizeof *table);
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
    PARSE(argc, argv, "sh6bench: batches freed in either order", list);
    CHECK(min_size <= max_size, "min is larger than max");
    run_numbered(threads, work);
    before_drain();
    return finish("sh6bench", "");
}
