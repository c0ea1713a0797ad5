/* xmalloc-test: all allocation on one side, all freeing on the other.
 *
 * After C. Lever and D. Boreham, "malloc() performance in a multithreaded Linux environment", USENIX 2000,
 * in the asymmetric form of C. Eder that SuperMalloc is measured with. Stresses: caches of threads that
 * only fill or only drain. Batches of thousands of objects, of random sizes unless one is given, go through
 * one queue that all threads share; a batch is a large object itself.
 *
 * Units: size in bytes (0: random from 8 to 512, small ones more often), batches per allocating thread. */
#include "program.h"
#include "ring.h"

enum { BATCH = 4096 };
static uint64_t threads = 1, batches = 400, size = 64, seed = 1;
static struct ring ring;

struct batch {
    uint64_t count;
    struct object objects[BATCH];
};

static uint32_t random_size(uint64_t *random) {
    uint32_t power = 8u << below(random, 7);
    return between(random, power / 2 < 8 ? 8 : power / 2, power);
}

static void *allocate(void *argument) {
    uint64_t random = mix(seed + *(uint64_t *)argument);
    struct ledger ledger = {0, 0};
    for (uint64_t n = 0; n < batches; n++) {
        struct batch *batch = malloc(sizeof *batch);
        CHECK(batch != NULL, "no memory for a batch");
        took(&ledger, sizeof *batch);
        uint32_t tag = (uint32_t)next_random(&random);
        for (uint32_t i = 0; i < BATCH; i++) {
            uint32_t bytes = size ? (uint32_t)size : random_size(&random);
            batch->objects[i] = take_object(&ledger, bytes, tag + i);
        }
        batch->count = BATCH;
        ring_put(&ring, batch);
    }
    close_ledger(&ledger, 0);
    return NULL;
}

static void *release(void *argument) {
    (void)argument;
    struct ledger ledger = {0, 0};
    uint64_t sum = 0;
    struct batch *batch;
    while ((batch = ring_get(&ring)) != NULL) {
        CHECK(batch->count == BATCH, "a batch of %llu", (unsigned long long)batch->count);
        for (uint32_t i = 0; i < BATCH; i++) {
            sum += batch->objects[i].size + batch->objects[i].tag;
            give_object(&ledger, batch->objects[i]);
        }
        gave(&ledger, sizeof *batch);
        free(batch);
    }
    close_ledger(&ledger, sum);
    return NULL;
}

int main(int argc, char **argv) {
    struct argument list[] = {
        {"threads", &threads, 1, THREADS_MAX / 2, "allocating threads, and as many freeing ones"},
        {"batches", &batches, 1, UINT32_MAX, "batches of 4096 objects of each allocating thread"},
        {"size", &size, 0, 1 << 20, "size of an object, 0 for random"},
        {"seed", &seed, 0, UINT64_MAX, "of the random numbers"},
    };
    PARSE(argc, argv, "xmalloc-test: batches allocated by some threads and freed by others", list);
    ring_init(&ring);
    pthread_t handles[THREADS_MAX];
    uint64_t numbers[THREADS_MAX];
    for (uint64_t i = 0; i < threads; i++) {
        numbers[i] = i;
        handles[2 * i] = start_thread(release, NULL);
        handles[2 * i + 1] = start_thread(allocate, &numbers[i]);
    }
    for (uint64_t i = 0; i < threads; i++) join_thread(handles[2 * i + 1]);
    for (uint64_t i = 0; i < threads; i++) ring_put(&ring, NULL);
    for (uint64_t i = 0; i < threads; i++) join_thread(handles[2 * i]);
    before_drain();
    return finish("xmalloc-test", "");
}
