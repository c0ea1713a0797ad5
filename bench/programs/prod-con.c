/* prod-con: pairs of a producer and a consumer.
 *
 * After S. Schneider, C. Antonopoulos, D. Nikolopoulos, "Scalable locality-conscious multithreaded memory
 * allocation", ISMM 2006, as it is run on recoverable heaps too (64 B objects). Stresses: every object is
 * freed by another thread than the one that allocated it, in the order of allocation, and no thread does
 * both.
 *
 * Units: size in bytes, objects per pair; threads in pairs. */
#include "program.h"
#include "ring.h"

enum { BATCH = 64 };
static uint64_t pairs = 1, objects = 4000000, size = 64, seed = 1;

/* A message is an object itself. */
struct batch {
    struct object objects[BATCH];
};

struct pair {
    struct ring ring;
    uint64_t number;
};

static void *produce(void *argument) {
    struct pair *pair = argument;
    uint64_t random = mix(seed + pair->number);
    struct ledger ledger = {0, 0};
    for (uint64_t done = 0; done < objects; done += BATCH) {
        struct batch *batch = take_table(&ledger, 1, sizeof *batch);
        uint32_t tag = (uint32_t)next_random(&random);
        for (uint32_t i = 0; i < BATCH; i++) batch->objects[i] = take_object(&ledger, (uint32_t)size, tag + i);
        ring_put(&pair->ring, batch);
    }
    ring_put(&pair->ring, NULL);
    close_ledger(&ledger, 0);
    return NULL;
}

static void *consume(void *argument) {
    struct pair *pair = argument;
    struct ledger ledger = {0, 0};
    uint64_t sum = 0;
    struct batch *batch;
    while ((batch = ring_get(&pair->ring)) != NULL) {
        sum += batch->objects[0].tag;
        for (uint32_t i = 0; i < BATCH; i++) give_object(&ledger, batch->objects[i]);
        give_table(&ledger, batch, 1, sizeof *batch);
    }
    close_ledger(&ledger, sum);
    return NULL;
}

int main(int argc, char **argv) {
    struct argument list[] = {
        {"pairs", &pairs, 1, THREADS_MAX / 2, "producers, and as many consumers"},
        {"objects", &objects, 1, UINT32_MAX, "objects of each pair"},
        {"size", &size, 1, 1 << 30, "size of an object"},
        {"seed", &seed, 0, UINT64_MAX, "of the random numbers"},
    };
    PARSE(argc, argv, "prod-con: some threads allocate, others free", list);
    struct ledger ledger = {0, 0};
    struct pair *all = take_table(&ledger, pairs, sizeof *all);
    pthread_t threads[THREADS_MAX];
    for (uint64_t i = 0; i < pairs; i++) {
        ring_init(&all[i].ring);
        all[i].number = i;
        threads[2 * i] = start_thread(produce, &all[i]);
        threads[2 * i + 1] = start_thread(consume, &all[i]);
    }
    for (uint64_t i = 0; i < 2 * pairs; i++) join_thread(threads[i]);
    settle(&ledger);
    before_drain();
    give_table(&ledger, all, pairs, sizeof *all);
    close_ledger(&ledger, 0);
    return finish("prod-con", "");
}
