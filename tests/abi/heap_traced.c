/* Types of roots: a catalogue of shelves of books, whose texts look like pointers and are none.
 *   heap_traced PATH fill|open|offline|fixed|addresses */
#include "heap.h"

enum { SHELVES = 50, BOOKS = 20, ROOT = 7 };

typedef struct book {
    uint64_t text;  /* 100 bytes */
    uint64_t pages; /* a number, which looks like a pointer */
} book;

typedef struct shelf {
    uint64_t next;
    uint64_t books;   /* an array */
    uint64_t count;
    uint64_t gone;    /* leads nowhere */
    uint64_t untyped; /* something of which nobody knows anything */
} shelf;

static spandrel_heap *heap;

static void trace_book(const void *object, spandrel_heap_tracer *tracer) {
    const book *at = object;
    spandrel_heap_trace_pointer(tracer, &at->text, NULL, 100);
}

static void trace_shelf(const void *object, spandrel_heap_tracer *tracer) {
    const shelf *at = object;
    spandrel_heap_trace_pointer(tracer, &at->next, trace_shelf, sizeof(shelf));
    spandrel_heap_trace_array(tracer, &at->books, trace_book, sizeof(book), (size_t)at->count);
    spandrel_heap_trace_pointer(tracer, &at->gone, NULL, 1);
    spandrel_heap_trace_words(tracer, &at->untyped, sizeof at->untyped);
}

static uint64_t made(size_t bytes, void **object) {
    *object = spandrel_heap_calloc(heap, 1, bytes);
    CHECK(*object);
    return spandrel_heap_offset(heap, *object);
}

/* A word that leads to an object that nothing else leads to. */
static uint64_t decoy(void) {
    void *object;
    return made(200, &object);
}

static void fill(const char *path) {
    spandrel_heap_options options = heap_options();
    options.medium = SPANDREL_HEAP_MAPPED;
    unlink(path);
    heap = spandrel_heap_start(path, &options);
    CHECK(heap);
    uint64_t before = 0;
    for (int i = 0; i < SHELVES; i++) {
        void *object;
        uint64_t word = made(sizeof(shelf), &object);
        shelf *shelf = object;
        shelf->next = before;
        shelf->count = BOOKS;
        shelf->books = made(sizeof(book) * BOOKS, &object);
        book *books = object;
        for (int k = 0; k < BOOKS; k++) {
            books[k].text = made(100, &object);
            *(uint64_t *)object = decoy();
            books[k].pages = decoy();
        }
        shelf->gone = shelf->books + 8;
        shelf->untyped = made(16, &object);
        *(uint64_t *)object = made(64, &object);
        CHECK(spandrel_heap_set_root(heap, ROOT, shelf) == 0);
        before = word;
    }
    die();
}

/* For each shelf: itself, its books, their texts, what is untyped, and what that leads to. */
static const uint64_t LIVE = SHELVES * (4 + BOOKS);

static void verify(void) {
    int shelves = 0;
    for (const shelf *at = spandrel_heap_get_root(heap, ROOT); at; at = spandrel_heap_at(heap, at->next)) {
        shelves++;
        CHECK(at->gone == 0 && at->count == BOOKS);
        const book *books = spandrel_heap_at(heap, at->books);
        for (int k = 0; k < BOOKS; k++) {
            CHECK(spandrel_heap_usable_size(heap, spandrel_heap_at(heap, books[k].text)) >= 100 && books[k].pages);
        }
    }
    CHECK(shelves == SHELVES);
}

static void opened(const char *path) {
    const spandrel_heap_root_type type = {ROOT, trace_shelf, sizeof(shelf), NULL, 0};
    spandrel_heap_root_type wrong = {SPANDREL_HEAP_ROOTS, trace_shelf, sizeof(shelf), NULL, 0};
    spandrel_heap_options options = heap_options();
    options.medium = SPANDREL_HEAP_MAPPED;
    options.types = &wrong;
    options.type_count = 1;
    FAILS(EINVAL, !spandrel_heap_open(path, &options));
    wrong.index = ROOT;
    wrong.bytes = 0;
    FAILS(EINVAL, !spandrel_heap_open(path, &options));
    options.types = &type;
    heap = spandrel_heap_open(path, &options);
    spandrel_heap_collected found = heap_collected();
    CHECK(heap && spandrel_heap_recovered(heap, &found) == 1);
    CHECK(found.live == LIVE && found.cleared == SHELVES);
    verify();
    /* The types are still known. */
    CHECK(spandrel_heap_collect(heap, &found) == 0 && found.live == LIVE && found.cleared == 0);
    CHECK(spandrel_heap_close(heap) == 0);
}

static void offline(const char *path) {
    spandrel_heap_options options = heap_options();
    options.medium = SPANDREL_HEAP_MAPPED;
    spandrel_heap_collected found = heap_collected();
    heap = spandrel_heap_start_off(path, &options);
    CHECK(heap);
    FAILS(EINVAL, spandrel_heap_set_trace(heap, SPANDREL_HEAP_ROOTS, trace_shelf, 8) == -1);
    FAILS(EINVAL, spandrel_heap_set_trace(heap, ROOT, trace_shelf, 0) == -1);
    CHECK(spandrel_heap_set_trace(heap, ROOT, NULL, 1) == 0);
    CHECK(spandrel_heap_set_trace(heap, ROOT, trace_shelf, sizeof(shelf)) == 0);
    for (unsigned int i = 0; i < SPANDREL_HEAP_ROOTS; i++) {
        if (i != ROOT) CHECK(spandrel_heap_set_trace(heap, i, NULL, 8) == 0);
    }
    CHECK(spandrel_heap_collect(heap, &found) == 0 && found.live == LIVE && found.cleared == SHELVES);
    verify();
    CHECK(spandrel_heap_close(heap) == 0);
}

/* Addresses in a fixed heap, in objects of known types. */
typedef struct node {
    struct node *next;
    uint64_t value;
} node;

static void trace_node(const void *object, spandrel_heap_tracer *tracer) {
    spandrel_heap_trace_pointer(tracer, &((const node *)object)->next, trace_node, sizeof(node));
}

static void fixed(const char *path) {
    spandrel_heap_options options = heap_options();
    options.medium = SPANDREL_HEAP_MAPPED;
    options.fixed = 1;
    unlink(path);
    heap = spandrel_heap_start(path, &options);
    CHECK(heap);
    for (uint64_t i = 0; i < 1000; i++) {
        node *made = spandrel_heap_malloc(heap, sizeof *made);
        CHECK(made && spandrel_heap_malloc(heap, sizeof *made));
        *made = (node){spandrel_heap_get_root(heap, ROOT), i};
        CHECK(spandrel_heap_set_root(heap, ROOT, made) == 0);
    }
    die();
}

static void addresses(const char *path) {
    const spandrel_heap_root_type type = {ROOT, trace_node, sizeof(node), NULL, 0};
    spandrel_heap_options options = heap_options();
    options.medium = SPANDREL_HEAP_MAPPED;
    options.types = &type;
    options.type_count = 1;
    heap = spandrel_heap_open(path, &options);
    spandrel_heap_collected found = heap_collected();
    CHECK(heap && spandrel_heap_recovered(heap, &found) == 1 && found.live == 1000 && found.cleared == 0);
    uint64_t left = 1000;
    for (const node *at = spandrel_heap_get_root(heap, ROOT); at; at = at->next) CHECK(at->value == --left);
    CHECK(left == 0 && spandrel_heap_close(heap) == 0);
}

int main(int count, char **words) {
    CHECK(count == 3);
    const char *path = words[1], *step = words[2];
    if (strcmp(step, "fill") == 0) fill(path);
    else if (strcmp(step, "open") == 0) opened(path);
    else if (strcmp(step, "offline") == 0) offline(path);
    else if (strcmp(step, "fixed") == 0) fixed(path);
    else addresses(path);
    return 0;
}
