/* The child of a fork cannot use its parent's heap, and does it no harm; it may have one of its own.
 *   heap_fork PATH */
#include "heap.h"

static spandrel_heap *heap;

static void child(void *small, void *large, const char *path) {
    FAILS(EPERM, !spandrel_heap_malloc(heap, 16));
    CHECK(strstr(spandrel_heap_error_text(), "parent"));
    FAILS(EPERM, !spandrel_heap_calloc(heap, 1, 5000));
    FAILS(EPERM, !spandrel_heap_malloc(heap, 300000));
    FAILS(EPERM, !spandrel_heap_realloc(heap, small, 5000));
    FAILS(EPERM, spandrel_heap_free(heap, small) == -1);
    FAILS(EPERM, spandrel_heap_free(heap, large) == -1);
    FAILS(EPERM, spandrel_heap_set_root(heap, 0, NULL) == -1);
    FAILS(EPERM, spandrel_heap_named_root(heap, "new") == -1);
    FAILS(EPERM, spandrel_heap_checkpoint(heap) == -1);
    FAILS(EPERM, spandrel_heap_collect(heap, NULL) == -1);
    FAILS(EWOULDBLOCK, !spandrel_heap_open(path, NULL));
    char name[1000];
    snprintf(name, sizeof name, "%s.child", path);
    FAILS(EPERM, spandrel_heap_close(heap) == -1);
    spandrel_heap *own = spandrel_heap_start(name, NULL);
    CHECK(own && spandrel_heap_malloc(own, 16));
    CHECK(spandrel_heap_malloc(own, 16) && spandrel_heap_close(own) == 0);
}

int main(int count, char **words) {
    CHECK(count == 2);
    heap = spandrel_heap_start(words[1], NULL);
    char *small = spandrel_heap_malloc(heap, 100), *large = spandrel_heap_malloc(heap, 300000);
    CHECK(heap && small && large && spandrel_heap_set_root(heap, 0, small) == 0);
    strcpy(small, "the parent's");
    pid_t forked = fork();
    if (forked == 0) {
        child(small, large, words[1]);
        _exit(0);
    }
    int status;
    CHECK(forked > 0 && waitpid(forked, &status, 0) == forked && status == 0);
    CHECK(spandrel_heap_malloc(heap, 16) && spandrel_heap_free(heap, large) == 0);
    CHECK(spandrel_heap_get_root(heap, 0) == small && strcmp(small, "the parent's") == 0);
    CHECK(spandrel_heap_close(heap) == 0);
    heap = spandrel_heap_restart(words[1], NULL);
    CHECK(heap && strcmp(spandrel_heap_get_root(heap, 0), "the parent's") == 0 && spandrel_heap_close(heap) == 0);
    return 0;
}
