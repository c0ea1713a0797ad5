/* rptest: random sizes up to 16 000 bytes, some freed by other threads.
 *
 * After the description of M. Jansson's rpmalloc-benchmark. Stresses: size classes over a wide range with a
 * random order of freeing, and crossing of objects between threads. In each loop a thread replaces random
 * objects of its table; every second loop it hands some objects to the next thread, which frees them. Sizes
 * are uniform, or with spread=1 small ones are more likely by the square.
 *
 * One byte of each cache line of an object is written.
 * Units: sizes in bytes; loops of each thread; objects replaced per loop; objects in the table. */
#include "program.h"

enum { CROSSING = 64 };
static uint64_t threads = 2, loops = 1000, replaced = 1000, objects = 1000, cross = 2, spread = 0, min_size = 8,
                max_size = 16000, seed = 1;

struct parcel {
    struct parcel *next;
    struct object objects[CROSSING];
};

struct worker {
    uint64_t number;
    struct parcel *inbox; /* a stack that others push to and its owner takes whole */
};

static struct worker workers[THREADS_MAX];

static struct object take(struct ledger *ledger, uint64_t *random) {
    double share = uniform(random);
    uint32_t size = (uint32_t)((double)min_size + (double)(max_size - min_size) * (spread ? share * share : share));
    struct object object = take_object(ledger, size, (uint32_t)*random);
    for (uint32_t at = 64; at + 8 < size; at += 64) object.at[at] = (unsigned char)at;
    return object;
}

static uint64_t open_parcels(struct ledger *ledger, struct worker *worker) {
    uint64_t sum = 0;
    struct parcel *parcel = __atomic_exchange_n(&worker->inbox, NULL, __ATOMIC_ACQUIRE);
    while (parcel != NULL) {
        struct parcel *next = parcel->next;
        for (int i = 0; i < CROSSING; i++) {
            sum += parcel->objects[i].size;
            give_object(ledger, parcel->objects[i]);
        }
        give_table(ledger, parcel, 1, sizeof *parcel);
        parcel = next;
    }
    return sum;
}

static void send(struct worker *to, struct parcel *parcel) {
    parcel->next = __atomic_load_n(&to->inbox, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&to->inbox, &parcel->next, parcel, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {}
}

static void *work(void *argument) {
    struct worker *self = argument;
    uint64_t random = mix(seed + self->number), sum = 0;
    struct ledger ledger = {0, 0};
    struct object *table = take_table(&ledger, objects, sizeof *table);
    for (uint64_t i = 0; i < objects; i++) table[i] = take(&ledger, &random);
    for (uint64_t loop = 0; loop < loops; loop++) {
        for (uint64_t i = 0; i < replaced; i++) {
            struct object *slot = &table[below(&random, (uint32_t)objects)];
            sum += slot->size;
            give_object(&ledger, *slot);
            *slot = take(&ledger, &random);
        }
        if (cross != 0 && loop % cross == 0) {
            struct parcel *parcel = take_table(&ledger, 1, sizeof *parcel);
            for (int i = 0; i < CROSSING; i++) {
                struct object *slot = &table[below(&random, (uint32_t)objects)];
                parcel->objects[i] = *slot;
                *slot = take(&ledger, &random);
            }
            send(&workers[(self->number + 1) % threads], parcel);
        }
        sum += open_parcels(&ledger, self);
    }
    for (uint64_t i = 0; i < objects; i++) give_object(&ledger, table[i]);
    give_table(&ledger, table, objects, sizeof *table);
    close_ledger(&ledger, sum);
    return NULL;
}

int main(int argc, char **argv) {
    struct argument list[] = {
        {"threads", &threads, 1, THREADS_MAX, "threads"},
        {"loops", &loops, 1, UINT32_MAX, "loops of each thread"},
        {"replaced", &replaced, 1, UINT32_MAX, "objects replaced in a loop"},
        {"objects", &objects, 1, 10000000, "live objects of a thread"},
        {"cross", &cross, 0, UINT32_MAX, "loops between two parcels to the next thread, 0 for none"},
        {"spread", &spread, 0, 1, "0 for uniform sizes, 1 for more small ones"},
        {"min", &min_size, 1, 1 << 30, "smallest size"},
        {"max", &max_size, 1, 1 << 30, "largest size"},
        {"seed", &seed, 0, UINT64_MAX, "of the random numbers"},
    };
    PARSE(argc, argv, "rptest: random sizes, objects that cross threads", list);
    CHECK(min_size <= max_size, "min is larger than max");
    for (uint64_t i = 0; i < threads; i++) workers[i].number = i;
    run_threads(threads, work, workers, sizeof workers[0]);
    before_drain();
    struct ledger ledger = {0, 0};
    uint64_t sum = 0;
    for (uint64_t i = 0; i < threads; i++) sum += open_parcels(&ledger, &workers[i]);
    close_ledger(&ledger, sum);
    return finish("rptest", "");
}
