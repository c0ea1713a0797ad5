/* malloc-large: objects of 5 to 25 MiB.
 *
 * After the description in mimalloc-bench. Stresses: what fresh pages cost. At most 20 objects live; a
 * random one is replaced at each step. With fill=1 a new object is written whole, as a program that zeroes
 * its buffers does; with fill=0 only one byte of each page is.
 *
 * Units: sizes in bytes; steps. */
#include "program.h"

#include <new>

enum { PAGE = 4096 };
static uint64_t steps = 300, live = 20, min_size = 5 << 20, max_size = 25 << 20, fill = 0, seed = 1;

static void take(struct ledger *ledger, uint64_t *random, struct object *slot) {
    slot->size = between(random, (uint32_t)min_size, (uint32_t)max_size);
    slot->tag = (uint32_t)*random;
    slot->at = static_cast<unsigned char *>(::operator new(slot->size));
    if (fill) memset(slot->at, (int)(slot->tag & 0xff), slot->size);
    else
        for (uint32_t at = 0; at < slot->size; at += PAGE) slot->at[at] = (unsigned char)slot->tag;
    mark(slot->at, slot->size, slot->tag);
    took(ledger, slot->size);
}

static void give(struct ledger *ledger, struct object object) {
    check_object(object);
    for (uint32_t at = PAGE; at + 8 < object.size; at += PAGE)
        CHECK(object.at[at] == (unsigned char)object.tag, "offset %u of %p was overwritten", at, (void *)object.at);
    gave(ledger, object.size);
    ::operator delete(object.at);
}

int main(int argc, char **argv) {
    struct argument list[] = {
        {"steps", &steps, 1, UINT32_MAX, "objects that are replaced"},
        {"live", &live, 1, 10000, "live objects at most"},
        {"min", &min_size, 16, 1 << 30, "smallest size"},
        {"max", &max_size, 16, 1 << 30, "largest size"},
        {"fill", &fill, 0, 1, "whether every byte is written, or one of each page"},
        {"seed", &seed, 0, UINT64_MAX, "of the random numbers"},
    };
    PARSE(argc, argv, "malloc-large: large objects", list);
    CHECK(min_size <= max_size, "min is larger than max");
    uint64_t random = mix(seed), sum = 0;
    struct ledger ledger = {0, 0};
    struct object *table = static_cast<struct object *>(take_table(&ledger, live, sizeof(struct object)));
    for (uint64_t step = 0; step < steps; step++) {
        struct object *slot = &table[below(&random, (uint32_t)live)];
        if (slot->at != NULL) give(&ledger, *slot);
        take(&ledger, &random, slot);
        sum += slot->size;
    }
    settle(&ledger);
    before_drain();
    for (uint64_t i = 0; i < live; i++)
        if (table[i].at != NULL) give(&ledger, table[i]);
    give_table(&ledger, table, live, sizeof(struct object));
    close_ledger(&ledger, sum);
    return finish("malloc-large", "");
}
