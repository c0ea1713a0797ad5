/* Both libraries in one program, as archives: malloc is Spandrel's, objects of a heap are the heap's, and threads have both.
 *   heap_and_malloc PATH */
#include "heap.h"

#include <pthread.h>
#include <spandrel.h>

enum { THREADS = 4, OBJECTS = 20000 };

static spandrel_heap *heap;

static void *work(void *argument) {
    uintptr_t number = (uintptr_t)argument;
    void *before[64] = {0}, *kept[64] = {0};
    for (size_t i = 0; i < OBJECTS; i++) {
        size_t at = i % 64, size = 16 + (i * 37 + number) % 900;
        if (before[at]) {
            CHECK(*(size_t *)before[at] == i - 64 && *(size_t *)kept[at] == i - 64);
            free(before[at]);
            CHECK(spandrel_heap_free(heap, kept[at]) == 0);
        }
        before[at] = malloc(size);
        kept[at] = spandrel_heap_malloc(heap, size);
        CHECK(before[at] && kept[at]);
        *(size_t *)before[at] = *(size_t *)kept[at] = i;
    }
    for (size_t at = 0; at < 64; at++) {
        free(before[at]);
        CHECK(spandrel_heap_free(heap, kept[at]) == 0);
    }
    return NULL;
}

int main(int count, char **words) {
    CHECK(count == 2 && spandrel_version());
    CHECK(spandrel_set_mode("native") == 0);
    spandrel_heap_options options = heap_options();
    heap = spandrel_heap_start(words[1], &options);
    CHECK(heap);
    void *root = spandrel_heap_calloc(heap, 1, 100);
    CHECK(root && spandrel_heap_set_root(heap, 0, root) == 0);
    CHECK(strcmp(spandrel_mode(), "native") == 0);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    /* A child has a malloc, and not the heap. */
    pid_t child = fork();
    if (child == 0) {
        free(malloc(1000));
        FAILS(EPERM, !spandrel_heap_malloc(heap, 100000));
        _exit(0);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    spandrel_heap_collected found = heap_collected();
    CHECK(spandrel_heap_collect(heap, &found) == 0 && found.live == 1);
    CHECK(spandrel_heap_close(heap) == 0);
    return 0;
}
