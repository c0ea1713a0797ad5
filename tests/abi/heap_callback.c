/* Frees that wait for a commit, as a library of transactions would have it.
 *   heap_callback PATH */
#include "heap.h"

enum { MOST = 100 };

struct waiting {
    spandrel_heap *heap;
    void *objects[MOST];
    int count;
};

static void put_off(void *object, void *argument) {
    struct waiting *waiting = argument;
    CHECK(waiting->count < MOST);
    waiting->objects[waiting->count++] = object;
}

static void commit(struct waiting *waiting) {
    while (waiting->count > 0) CHECK(spandrel_heap_safe_free(waiting->heap, waiting->objects[--waiting->count]) == 0);
}

int main(int count, char **words) {
    CHECK(count == 2);
    static struct waiting waiting;
    spandrel_heap *heap = waiting.heap = spandrel_heap_start(words[1], NULL);
    CHECK(heap && spandrel_heap_set_free_cb(heap, put_off, &waiting) == 0);
    char *objects[10];
    for (int i = 0; i < 10; i++) {
        objects[i] = spandrel_heap_malloc(heap, (size_t)100 << i);
        CHECK(objects[i]);
        strcpy(objects[i], "kept");
    }
    for (int i = 0; i < 10; i++) CHECK(spandrel_heap_free(heap, objects[i]) == 0);
    CHECK(waiting.count == 10);
    for (int i = 0; i < 10; i++) {
        CHECK(waiting.objects[i] == objects[i] && strcmp(objects[i], "kept") == 0);
        CHECK(spandrel_heap_usable_size(heap, objects[i]) >= (size_t)100 << i);
    }
    /* What is no object is not handed over. */
    FAILS(EFAULT, spandrel_heap_free(heap, objects[0] + 8) == -1);
    CHECK(waiting.count == 10 && spandrel_heap_free(heap, NULL) == 0 && waiting.count == 10);
    commit(&waiting);
    for (int i = 0; i < 10; i++) FAILS(EFAULT, spandrel_heap_safe_free(heap, objects[i]) == -1);
    /* What has moved waits as well. */
    char *small = spandrel_heap_malloc(heap, 20);
    CHECK(small);
    strcpy(small, "moved");
    char *large = spandrel_heap_realloc(heap, small, 5000);
    CHECK(large && large != small && strcmp(large, "moved") == 0 && waiting.count == 1 && waiting.objects[0] == small);
    commit(&waiting);
    CHECK(spandrel_heap_set_free_cb(heap, NULL, NULL) == 0);
    CHECK(spandrel_heap_free(heap, large) == 0 && waiting.count == 0);
    CHECK(spandrel_heap_close(heap) == 0);
    return 0;
}
