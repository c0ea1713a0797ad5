/* A list of addresses in a fixed heap, which the process is killed beside, again and again.
 *   heap_list PATH mapped|logged fill|more|offline|verify */
#include "heap.h"

enum { NODES = 20000 };

typedef struct node {
    struct node *next;
    uint64_t value;
} node;

static spandrel_heap *heap;

/* What the heap lies on is said each time. */
static spandrel_heap_options options;

static void push(uint64_t value) {
    node *made = spandrel_heap_malloc(heap, sizeof *made);
    CHECK(made);
    made->next = spandrel_heap_get_root(heap, 0);
    made->value = value;
    CHECK(spandrel_heap_persist(heap, made, sizeof *made) == 0);
    CHECK(spandrel_heap_set_root(heap, 0, made) == 0);
    /* One that nobody can find again. */
    CHECK(spandrel_heap_malloc(heap, sizeof *made));
}

static void verify(uint64_t nodes) {
    for (const node *at = spandrel_heap_get_root(heap, 0); at; at = at->next) {
        CHECK(nodes > 0 && at->value == --nodes);
        CHECK(spandrel_heap_usable_size(heap, at) == 16);
    }
    CHECK(nodes == 0);
}

static void fill(const char *path, int is_logged) {
    options.fixed = 1;
    heap = spandrel_heap_start(path, &options);
    CHECK(heap && spandrel_heap_recovered(heap, NULL) == 0);
    CHECK((spandrel_heap_guarantee(heap) == SPANDREL_HEAP_SURVIVES_FILE) == is_logged);
    FAILS(EEXIST, !spandrel_heap_start(path, &options));
    FAILS(EWOULDBLOCK, !spandrel_heap_open(path, &options));
    for (uint64_t i = 0; i < NODES; i++) push(i);
    CHECK(spandrel_heap_checkpoint(heap) == 0);
    if (is_logged) {
        /* Nobody will know of these. */
        for (uint64_t i = 0; i < 100; i++) push(7);
    }
    die();
}

static void more(const char *path, int is_logged) {
    FAILS(EUCLEAN, !spandrel_heap_restart(path, &options));
    CHECK(strstr(spandrel_heap_error_text(), "recovered"));
    spandrel_heap_collected found = heap_collected();
    heap = spandrel_heap_open(path, &options);
    CHECK(heap && spandrel_heap_recovered(heap, &found) == 1);
    CHECK(found.live == NODES && found.live_bytes == 16 * NODES);
    verify(NODES);
    for (uint64_t i = NODES; i < 2 * NODES; i++) push(i);
    if (is_logged) CHECK(spandrel_heap_checkpoint(heap) == 0);
    die();
}

static void offline(const char *path) {
    spandrel_heap_collected found = heap_collected();
    heap = spandrel_heap_start_off(path, &options);
    CHECK(heap);
    FAILS(EUCLEAN, spandrel_heap_recovered(heap, NULL) == -1);
    FAILS(EUCLEAN, !spandrel_heap_malloc(heap, 16));
    FAILS(EUCLEAN, !spandrel_heap_calloc(heap, 1, 100000));
    CHECK(spandrel_heap_collect(heap, &found) == 0 && found.live == 2 * NODES && found.freed >= NODES);
    CHECK(spandrel_heap_recovered(heap, &found) == 1 && found.live == 2 * NODES);
    verify(2 * NODES);
    CHECK(spandrel_heap_close(heap) == 0);
}

static void verify_closed(const char *path, int is_logged) {
    heap = spandrel_heap_restart(path, &options);
    CHECK(heap && spandrel_heap_recovered(heap, NULL) == 0);
    CHECK(spandrel_heap_guarantee(heap) == (is_logged ? SPANDREL_HEAP_SURVIVES_FILE : SPANDREL_HEAP_SURVIVES_PROCESS));
    verify(2 * NODES);
    CHECK(spandrel_heap_close(heap) == 0);
    /* Offline, one that was closed is as any other. */
    heap = spandrel_heap_start_off(path, &options);
    CHECK(heap && spandrel_heap_recovered(heap, NULL) == 0);
    CHECK(spandrel_heap_malloc(heap, 16));
    CHECK(spandrel_heap_close(heap) == 0);
}

int main(int count, char **words) {
    CHECK(count == 4);
    const char *path = words[1], *step = words[3];
    int is_logged = strcmp(words[2], "logged") == 0;
    options = heap_options();
    /* Said once: the file remembers it. */
    if (strcmp(step, "fill") == 0) options.medium = is_logged ? SPANDREL_HEAP_LOGGED : SPANDREL_HEAP_MAPPED;
    if (strcmp(step, "fill") == 0) fill(path, is_logged);
    else if (strcmp(step, "more") == 0) more(path, is_logged);
    else if (strcmp(step, "offline") == 0) offline(path);
    else verify_closed(path, is_logged);
    return 0;
}
