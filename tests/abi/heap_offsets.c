/* A tree of words in a heap that is mapped anywhere, under a named root.
 *   heap_offsets PATH fill|verify */
#include "heap.h"

#include <sys/mman.h>

enum { DEPTH = 12 };

typedef struct node {
    uint64_t children[2];
    uint64_t value;
} node;

static spandrel_heap *heap;

static uint64_t plant(int depth, uint64_t value) {
    node *made = spandrel_heap_malloc(heap, sizeof *made);
    CHECK(made);
    made->value = value;
    for (unsigned int i = 0; i < 2; i++) made->children[i] = depth ? plant(depth - 1, 2 * value + i) : 0;
    CHECK(spandrel_heap_write_back(heap, made, sizeof *made) == 0);
    uint64_t word = spandrel_heap_offset(heap, made);
    CHECK(word && spandrel_heap_at(heap, word) == made);
    return word;
}

static uint64_t visit(uint64_t word, uint64_t value) {
    const node *at = spandrel_heap_at(heap, word);
    if (!at) return 0;
    CHECK(at->value == value);
    return 1 + visit(at->children[0], 2 * value) + visit(at->children[1], 2 * value + 1);
}

static void fill(const char *path) {
    spandrel_heap_options options = heap_options();
    options.medium = SPANDREL_HEAP_MAPPED;
    heap = spandrel_heap_start(path, &options);
    CHECK(heap);
    int trees = spandrel_heap_named_root(heap, "trees");
    CHECK(trees >= 0 && trees < SPANDREL_HEAP_ROOTS && spandrel_heap_named_root(heap, "trees") == trees);
    FAILS(EINVAL, spandrel_heap_named_root(heap, "") == -1);
    FAILS(EINVAL, spandrel_heap_named_root(heap, "\xff") == -1);
    FAILS(EINVAL, spandrel_heap_named_root(heap, NULL) == -1);
    CHECK(spandrel_heap_named_root(heap, "other") >= 0 && spandrel_heap_remove_root(heap, "other") == 0);
    FAILS(EINVAL, spandrel_heap_remove_root(heap, "other") == -1);
    uint64_t word = plant(DEPTH, 1);
    CHECK(spandrel_heap_fence(heap) == 0);
    CHECK(spandrel_heap_set_root(heap, (unsigned int)trees, spandrel_heap_at(heap, word)) == 0);
    /* A tree that no root leads to. */
    CHECK(plant(DEPTH, 1));
    die();
}

static void verify(const char *path) {
    spandrel_heap_collected found = heap_collected();
    void *before = NULL;
    for (int i = 0; i < 2; i++) {
        heap = spandrel_heap_open(path, NULL);
        CHECK(heap && spandrel_heap_recovered(heap, &found) == (i == 0));
        CHECK(found.live == (i == 0 ? (2 << DEPTH) - 1 : 0));
        CHECK(spandrel_heap_base(heap) != before);
        before = spandrel_heap_base(heap);
        int trees = spandrel_heap_named_root(heap, "trees");
        char name[41];
        CHECK(trees >= 0 && spandrel_heap_root_name(heap, (unsigned int)trees, name, sizeof name) == 5);
        CHECK(strcmp(name, "trees") == 0 && spandrel_heap_root_name(heap, 0, name, sizeof name) == 0 && !*name);
        CHECK(spandrel_heap_root_name(heap, (unsigned int)trees, name, 3) == 5 && strcmp(name, "tr") == 0);
        const void *root = spandrel_heap_get_root(heap, (unsigned int)trees);
        CHECK(visit(spandrel_heap_offset(heap, root), 1) == (2 << DEPTH) - 1);
        CHECK(spandrel_heap_close(heap) == 0);
        /* Next time it lies elsewhere: this page is taken as soon as the library's thread has unmapped what lay there. */
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        for (int tries = 0; mmap(before, 4096, PROT_NONE, flags, -1, 0) != before; tries++) {
            CHECK(tries < 60000);
            usleep(1000);
        }
    }
}

int main(int count, char **words) {
    CHECK(count == 3);
    if (strcmp(words[2], "fill") == 0) fill(words[1]);
    verify(words[1]);
    return 0;
}
