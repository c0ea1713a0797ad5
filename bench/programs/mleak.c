/* mleak: threads that leave an object behind and end.
 *
 * After the description of the test that comes with mimalloc. Stresses: what a thread costs an allocator,
 * and whether the memory of a thread's caches comes back when it has ended although an object of it lives.
 * Each thread allocates objects of random sizes, frees all but one and ends; what it leaves is freed when
 * `behind` more threads have come and gone.
 *
 * Units: threads one after the other; objects of each; sizes up to 1024 bytes. */
#include "program.h"

enum { OBJECTS_MAX = 4096 };
static uint64_t threads = 5000, objects = 200, behind = 1000, seed = 1;

struct visit {
    uint64_t number;
    struct object left;
};

static void *work(void *argument) {
    struct visit *visit = argument;
    uint64_t random = mix(seed + visit->number), chosen = below(&random, (uint32_t)objects), sum = 0;
    struct ledger ledger = {0, 0};
    struct object table[OBJECTS_MAX];
    for (uint64_t i = 0; i < objects; i++) {
        table[i] = take_object(&ledger, between(&random, 1, 1024), (uint32_t)random);
        sum += table[i].size;
        if (i == chosen) visit->left = table[i];
    }
    for (uint64_t i = 0; i < objects; i++)
        if (i != chosen) give_object(&ledger, table[i]);
    close_ledger(&ledger, sum);
    return NULL;
}

int main(int argc, char **argv) {
    struct argument list[] = {
        {"threads", &threads, 1, 100000000, "threads, one after the other"},
        {"objects", &objects, 1, OBJECTS_MAX, "objects of each thread"},
        {"behind", &behind, 1, 10000000, "threads that have ended and whose objects live"},
        {"seed", &seed, 0, UINT64_MAX, "of the random numbers"},
    };
    PARSE(argc, argv, "mleak: threads that leave an object behind", list);
    struct ledger ledger = {0, 0};
    struct visit *ring = take_table(&ledger, behind, sizeof *ring);
    for (uint64_t i = 0; i < threads; i++) {
        struct visit *visit = &ring[i % behind];
        if (visit->left.at != NULL) give_object(&ledger, visit->left);
        visit->number = i;
        join_thread(start_thread(work, visit));
    }
    settle(&ledger);
    before_drain();
    for (uint64_t i = 0; i < behind; i++)
        if (ring[i].left.at != NULL) give_object(&ledger, ring[i].left);
    give_table(&ledger, ring, behind, sizeof *ring);
    close_ledger(&ledger, 0);
    return finish("mleak", "");
}
