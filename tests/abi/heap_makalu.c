/* A program of Makalu's: lists under all roots, filled, killed, collected offline, restarted.
 *   heap_makalu PATH start|off|restart */
#include <makalu.h>

#include "heap.h"

enum { ROOTS = SPANDREL_HEAP_ROOTS, NODES = 20 };

typedef struct node {
    struct node *next;
    unsigned int id, number;
} node;

static void *waiting[ROOTS];
static unsigned int count_waiting;

static void put_off(void *object) { waiting[count_waiting++] = object; }

static void put_off_in(pthread_t thread, void *object) {
    CHECK(pthread_equal(thread, pthread_self()));
    put_off(object);
}

static void commit(void) {
    while (count_waiting > 0) MAK_safe_free(waiting[--count_waiting]);
}

static void start(const char *path) {
    CHECK(!spandrel_heap_default());
    FAILS(EINVAL, !MAK_malloc(16));
    CHECK(MAK_start(path) && spandrel_heap_default());
    FAILS(EBUSY, !MAK_start("/nowhere"));
    for (unsigned int id = 0; id < ROOTS; id++) {
        for (unsigned int number = 0; number < NODES; number++) {
            node *made = number % 2 ? MAK_malloc(sizeof *made) : MAK_calloc(1, sizeof *made);
            CHECK(made);
            made->next = MAK_get_root(id);
            made->id = id;
            made->number = number;
            CHECK(spandrel_heap_persist(spandrel_heap_default(), made, sizeof *made) == 0);
            CHECK(MAK_set_root(id, made) == 0 && MAK_malloc(sizeof *made));
        }
    }
    CHECK(spandrel_heap_checkpoint(spandrel_heap_default()) == 0);
    die();
}

static void restart(const char *path) {
    CHECK(MAK_restart(path) == 0);
    CHECK(MAK_set_free_cb(put_off) == 0);
    for (unsigned int id = 0; id < ROOTS; id++) {
        unsigned int number = NODES;
        for (const node *at = MAK_persistent_root(id); at; at = at->next) CHECK(at->id == id && at->number == --number);
        CHECK(number == 0);
        node *first = MAK_get_root(id);
        MAK_set_persistent_root(id, first->next);
        MAK_free(first);
        CHECK(count_waiting == id + 1 && first->number == NODES - 1);
    }
    commit();
    MAK_set_defer_free_fn(put_off_in);
    void *object = MAK_realloc(NULL, 100);
    MAK_free(object);
    CHECK(count_waiting == 1 && waiting[0] == object);
    MAK_free_imm(waiting[--count_waiting]);
    CHECK(MAK_set_free_cb(NULL) == 0);
    MAK_free(MAK_malloc(100));
    CHECK(count_waiting == 0 && MAK_close() == 0 && !spandrel_heap_default());
    FAILS(EINVAL, MAK_close() == -1);
}

int main(int count, char **words) {
    CHECK(count == 3);
    if (strcmp(words[2], "start") == 0) start(words[1]);
    if (strcmp(words[2], "off") == 0) {
        FAILS(EUCLEAN, MAK_restart(words[1]) == -1);
        CHECK(MAK_start_off(words[1]) == 0);
        FAILS(EUCLEAN, !MAK_malloc(16));
        CHECK(MAK_collect() && MAK_malloc(16) && MAK_close() == 0);
        FAILS(ENOENT, MAK_start_off("/nowhere") == -1);
        return 0;
    }
    restart(words[1]);
    return 0;
}
