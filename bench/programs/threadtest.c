/* threadtest: every thread for itself.
 *
 * After E. Berger, K. McKinley, R. Blumofe, P. Wilson, "Hoard: a scalable memory allocator for
 * multithreaded applications", ASPLOS 2000. Stresses: the plain way of many small objects that no other
 * thread sees; an allocator with one lock does not scale here. In each round a thread allocates its share
 * of the objects, then frees them all in order.
 *
 * Units: size in bytes, rounds, objects of all threads together. */
#include "program.h"

static uint64_t threads = 2, rounds = 200, objects = 60000, size = 64, seed = 1;

static void *work(void *argument) {
    uint64_t random = mix(seed + *(uint64_t *)argument);
    struct ledger ledger = {0, 0};
    uint64_t share = objects / threads + 1, sum = 0;
    struct object *table = take_table(&ledger, share, sizeof *table);
    for (uint64_t round = 0; round < rounds; round++) {
        uint32_t tag = (uint32_t)next_random(&random);
        for (uint64_t i = 0; i < share; i++) table[i] = take_object(&ledger, (uint32_t)size, tag + (uint32_t)i);
        for (uint64_t i = 0; i < share; i++) give_object(&ledger, table[i]);
        sum += tag;
    }
    give_table(&ledger, table, share, sizeof *table);
    close_ledger(&ledger, sum);
    return NULL;
}

int main(int argc, char **argv) {
    struct argument list[] = {
        {"threads", &threads, 1, THREADS_MAX, "threads"},
        {"rounds", &rounds, 1, UINT32_MAX, "rounds of each thread"},
        {"objects", &objects, 1, 100000000, "objects of a round, all threads together"},
        {"size", &size, 1, 1 << 30, "size of an object"},
        {"seed", &seed, 0, UINT64_MAX, "of the random numbers"},
    };
    PARSE(argc, argv, "threadtest: threads that share nothing", list);
    run_numbered(threads, work);
    before_drain();
    return finish("threadtest", "");
}
