/* mstress: a server with uneven threads, in phases.
 *
 * After the description of the stress test that comes with mimalloc (D. Leijen, B. Zorn, L. de Moura,
 * "Mimalloc: free list sharding in action", APLAS 2019). Stresses: objects that survive their threads,
 * objects that move between threads, sizes over many powers of two with a few large ones. In each phase new
 * threads run; thread i does more work the larger i is; each keeps some of its objects until its end, frees
 * others, and swaps some against what other threads, also of earlier phases, left in a common table.
 *
 * Every word of an object is written, and checked before it is freed.
 * Units: objects per unit of work; phases. */
#include "program.h"

enum { TABLE = 1000 };
static uint64_t threads = 2, phases = 20, scale = 20000, seed = 1;

/* Says what it is, so that one pointer is all that changes hands. */
struct block {
    uint64_t words, tag;
    uint64_t filling[];
};

static struct block *common[TABLE];
static uint64_t tags_in, tags_out;

static size_t bytes_of(const struct block *block) { return sizeof *block + block->words * sizeof(uint64_t); }

static struct block *take(struct ledger *ledger, uint64_t *random, uint64_t *tags) {
    /* Powers of two up to 512 words, each about as likely; one in 16 384 is of 64 to 512 KiB. */
    uint64_t draw = next_random(random);
    uint64_t words = 1ull << (draw % 10);
    if ((draw >> 32) % 16384 == 0) words = 8192ull << (draw >> 16) % 4;
    words += next_random(random) % words;
    struct block *block = malloc(sizeof *block + words * sizeof(uint64_t));
    CHECK(block != NULL, "no memory for %llu words", (unsigned long long)words);
    block->words = words;
    block->tag = draw >> 8;
    for (uint64_t i = 0; i < words; i++) block->filling[i] = block->tag ^ i;
    took(ledger, bytes_of(block));
    *tags += block->tag;
    return block;
}

static void give(struct ledger *ledger, struct block *block, uint64_t *tags) {
    for (uint64_t i = 0; i < block->words; i++)
        CHECK(block->filling[i] == (block->tag ^ i), "word %llu of %p was overwritten",
              (unsigned long long)i, (void *)block);
    *tags += block->tag;
    gave(ledger, bytes_of(block));
    free(block);
}

static void *work(void *argument) {
    uint64_t number = *(uint64_t *)argument, random = mix(seed + number), in = 0, out = 0;
    struct ledger ledger = {0, 0};
    uint64_t steps = scale * (number % threads + 1) / threads, kept_count = 0;
    struct block **kept = take_table(&ledger, steps, sizeof *kept);
    for (uint64_t step = 0; step < steps; step++) {
        struct block *block = take(&ledger, &random, &in);
        uint32_t fate = below(&random, 8);
        if (fate < 2) {
            give(&ledger, block, &out);
        } else if (fate == 2) {
            block = __atomic_exchange_n(&common[below(&random, TABLE)], block, __ATOMIC_ACQ_REL);
            if (block != NULL) give(&ledger, block, &out);
        } else {
            kept[kept_count++] = block;
            /* Now and then something older goes, from any place. */
            if (fate < 6) {
                uint64_t victim = below(&random, (uint32_t)kept_count);
                give(&ledger, kept[victim], &out);
                kept[victim] = kept[--kept_count];
            }
        }
    }
    while (kept_count > 0) give(&ledger, kept[--kept_count], &out);
    give_table(&ledger, kept, steps, sizeof *kept);
    close_ledger(&ledger, in);
    __atomic_add_fetch(&tags_in, in, __ATOMIC_RELAXED);
    __atomic_add_fetch(&tags_out, out, __ATOMIC_RELAXED);
    return NULL;
}

int main(int argc, char **argv) {
    struct argument list[] = {
        {"threads", &threads, 1, THREADS_MAX, "threads of a phase"},
        {"phases", &phases, 1, UINT32_MAX, "phases"},
        {"scale", &scale, 1, 10000000, "objects of the thread with the most work, per phase"},
        {"seed", &seed, 0, UINT64_MAX, "of the random numbers"},
    };
    PARSE(argc, argv, "mstress: uneven threads, phases, objects that change hands", list);
    CHECK(scale >= threads, "scale is less than a step for each thread");
    uint64_t numbers[THREADS_MAX];
    for (uint64_t phase = 0; phase < phases; phase++) {
        for (uint64_t i = 0; i < threads; i++) numbers[i] = phase * threads + i;
        run_threads(threads, work, numbers, sizeof numbers[0]);
    }
    before_drain();
    struct ledger ledger = {0, 0};
    for (int i = 0; i < TABLE; i++)
        if (common[i] != NULL) give(&ledger, common[i], &tags_out);
    CHECK(tags_in == tags_out, "other objects were freed than were allocated");
    close_ledger(&ledger, 0);
    return finish("mstress", "");
}
