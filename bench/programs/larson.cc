/* larson: a server whose threads come and go.
 *
 * After P. Larson and M. Krishnan, "Memory allocation for long-running server applications", ISMM 1998.
 * Stresses: objects freed by another thread than the one that allocated them, generation after generation
 * ("bleeding"), random sizes, threads that end while their objects live on. Each chain of threads has a
 * table of objects, of which a random one is replaced at each step; after `steps` the thread starts its
 * successor, which takes the table over, and ends.
 *
 * Objects are operator new's; with sized=1 operator delete is told their size.
 * Units: sizes in bytes, steps per thread, generations of threads per chain. */
#include "program.h"

#include <new>
#include <semaphore.h>

static uint64_t threads = 2, generations = 20, steps = 200000, slots = 1000, min_size = 8, max_size = 1000, sized = 0,
                seed = 1;
static sem_t ended;

struct chain {
    struct object *table;
    uint64_t random, generation;
    pthread_t last;
};

static void allocate(struct ledger *ledger, uint64_t *random, struct object *slot) {
    uint32_t size = between(random, (uint32_t)min_size, (uint32_t)max_size);
    slot->at = static_cast<unsigned char *>(::operator new(size));
    slot->size = size;
    slot->tag = (uint32_t)*random;
    mark(slot->at, size, slot->tag);
    took(ledger, size);
}

static void release(struct ledger *ledger, struct object object) {
    check_object(object);
    gave(ledger, object.size);
    if (sized) ::operator delete(object.at, (size_t)object.size);
    else ::operator delete(object.at);
}

static void *serve(void *argument) {
    struct chain *chain = static_cast<struct chain *>(argument);
    struct ledger ledger = {0, 0};
    uint64_t sum = 0;
    if (chain->generation > 0) join_thread(chain->last);
    /* Chains lie side by side: what is written at each step is the thread's own, or two threads would share a
     * cache line under one allocator and not under another. */
    struct object *table = chain->table;
    uint64_t random = chain->random;
    for (uint64_t i = 0; i < steps; i++) {
        struct object *slot = &table[below(&random, (uint32_t)slots)];
        release(&ledger, *slot);
        allocate(&ledger, &random, slot);
        sum += slot->size;
    }
    close_ledger(&ledger, sum);
    chain->random = random;
    chain->last = pthread_self();
    if (++chain->generation < generations) {
        pthread_t successor = start_thread(serve, chain);
        (void)successor; // joined by its own successor, which reads `last`
    } else {
        sem_post(&ended);
    }
    return NULL;
}

int main(int argc, char **argv) {
    struct argument list[] = {
        {"threads", &threads, 1, THREADS_MAX, "chains of threads"},
        {"generations", &generations, 1, 1000000, "threads of a chain, one after the other"},
        {"steps", &steps, 1, UINT32_MAX, "objects that a thread replaces"},
        {"slots", &slots, 1, 10000000, "live objects of a chain"},
        {"min", &min_size, 1, 1 << 30, "smallest size"},
        {"max", &max_size, 1, 1 << 30, "largest size"},
        {"sized", &sized, 0, 1, "whether operator delete is told the size"},
        {"seed", &seed, 0, UINT64_MAX, "of the random numbers"},
    };
    PARSE(argc, argv, "larson: objects handed from thread to thread", list);
    CHECK(min_size <= max_size, "min is larger than max");
    CHECK(sem_init(&ended, 0, 0) == 0, "semaphore");
    struct ledger ledger = {0, 0};
    struct chain *chains = static_cast<struct chain *>(take_table(&ledger, threads, sizeof(struct chain)));
    for (uint64_t i = 0; i < threads; i++) {
        chains[i].random = mix(seed + i);
        chains[i].table = static_cast<struct object *>(take_table(&ledger, slots, sizeof(struct object)));
        for (uint64_t slot = 0; slot < slots; slot++) allocate(&ledger, &chains[i].random, &chains[i].table[slot]);
    }
    settle(&ledger);
    for (uint64_t i = 0; i < threads; i++) start_thread(serve, &chains[i]);
    for (uint64_t i = 0; i < threads; i++) {
        while (sem_wait(&ended) != 0) CHECK(errno == EINTR, "semaphore");
    }
    for (uint64_t i = 0; i < threads; i++) join_thread(chains[i].last);
    settle(&ledger);
    before_drain();
    for (uint64_t i = 0; i < threads; i++) {
        for (uint64_t slot = 0; slot < slots; slot++) release(&ledger, chains[i].table[slot]);
        give_table(&ledger, chains[i].table, slots, sizeof(struct object));
    }
    give_table(&ledger, chains, threads, sizeof(struct chain));
    close_ledger(&ledger, 0);
    return finish("larson", "");
}
