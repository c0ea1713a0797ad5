/* alloc-test: random objects come and go, small ones and some places more often.
 *
 * After the description of the allocator test of ITHare.com (O'Logn Technologies, 2018). Stresses: the
 * plain fast way on a heap whose live objects outgrow the caches of processors. At each step a random place
 * of the table is drawn, places at the front more often (Pareto); an object there is read and freed, an
 * empty place gets a new one, whose size is up to a power of two with half the likelihood of the next
 * smaller power.
 *
 * Objects are operator new's. Units: steps of each thread; places in the table of each thread; sizes up to
 * 2^bits bytes. */
#include "program.h"

#include <new>

static uint64_t threads = 1, steps = 10000000, places = 100000, bits = 10, seed = 1;

static uint32_t random_size(uint64_t *random) {
    uint64_t draw = next_random(random);
    uint32_t power = 3 + (uint32_t)__builtin_ctzll(draw | 1ull << (bits - 3));
    return (1u << power) - (uint32_t)((draw >> 32) & ((1u << (power - 1)) - 1));
}

static void *work(void *argument) {
    uint64_t random = mix(seed + *static_cast<uint64_t *>(argument)), sum = 0;
    struct ledger ledger = {0, 0};
    struct object *table = static_cast<struct object *>(take_table(&ledger, places, sizeof(struct object)));
    for (uint64_t step = 0; step < steps; step++) {
        /* Four of five draws fall into the first fifth. */
        uint64_t draw = next_random(&random);
        uint32_t range = draw % 5 != 0 ? (uint32_t)(places / 5 + 1) : (uint32_t)places;
        struct object *slot = &table[((draw >> 32) * range) >> 32];
        if (slot->at != NULL) {
            check_object(*slot);
            for (uint32_t at = 64; at < slot->size; at += 64) sum += slot->at[at - 8];
            gave(&ledger, slot->size);
            ::operator delete(slot->at);
            slot->at = NULL;
        } else {
            slot->size = random_size(&random);
            slot->tag = (uint32_t)draw;
            slot->at = static_cast<unsigned char *>(::operator new(slot->size));
            for (uint32_t at = 64; at < slot->size; at += 64) slot->at[at - 8] = (unsigned char)at;
            mark(slot->at, slot->size, slot->tag);
            took(&ledger, slot->size);
        }
    }
    for (uint64_t i = 0; i < places; i++) {
        if (table[i].at == NULL) continue;
        check_object(table[i]);
        gave(&ledger, table[i].size);
        ::operator delete(table[i].at);
    }
    give_table(&ledger, table, places, sizeof(struct object));
    close_ledger(&ledger, sum);
    return NULL;
}

int main(int argc, char **argv) {
    struct argument list[] = {
        {"threads", &threads, 1, THREADS_MAX, "threads"},
        {"steps", &steps, 1, UINT64_MAX, "steps of each thread"},
        {"places", &places, 1, 100000000, "places in the table of each thread"},
        {"bits", &bits, 4, 24, "sizes are up to 2^bits"},
        {"seed", &seed, 0, UINT64_MAX, "of the random numbers"},
    };
    PARSE(argc, argv, "alloc-test: random objects come and go", list);
    run_numbered(threads, work);
    before_drain();
    return finish("alloc-test", "");
}
