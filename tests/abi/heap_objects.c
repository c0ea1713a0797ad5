/* Objects of a heap: allocated, resized, freed rightly and wrongly, by several threads; and arguments that are none.
 *   heap_objects PATH */
#include "heap.h"

#include <pthread.h>

static spandrel_heap *heap;

static void fill(void *object, size_t size, unsigned char seed) {
    for (size_t i = 0; i < size; i++) ((unsigned char *)object)[i] = (unsigned char)(seed + i * 7);
}

static void check(const void *object, size_t size, unsigned char seed) {
    for (size_t i = 0; i < size; i++) CHECK(((const unsigned char *)object)[i] == (unsigned char)(seed + i * 7));
}

static void options(const char *path) {
    spandrel_heap_options given = heap_options();
    given.struct_size = 0;
    FAILS(EINVAL, !spandrel_heap_start(path, &given));
    given.struct_size = sizeof given;
    given.medium = 9;
    FAILS(EINVAL, !spandrel_heap_start(path, &given));
    given.medium = 0;
    given.size = 4096;
    FAILS(EINVAL, !spandrel_heap_start(path, &given));
    /* A later version of the structure: what is not set does not matter. */
    struct {
        spandrel_heap_options known;
        uint64_t later;
    } later;
    memset(&later, 0, sizeof later);
    later.known.struct_size = sizeof later;
    later.known.limit = (size_t)1 << 30;
    later.known.layout = 5;
    later.later = 1;
    FAILS(EINVAL, !spandrel_heap_start(path, &later.known));
    FAILS(ENOENT, !spandrel_heap_open(path, NULL));
    FAILS(EINVAL, !spandrel_heap_start(NULL, NULL));
    later.later = 0;
    heap = spandrel_heap_start(path, &later.known);
    CHECK(heap && spandrel_heap_close(heap) == 0);
    given = heap_options();
    given.layout = 6;
    FAILS(EPROTOTYPE, !spandrel_heap_open(path, &given));
    CHECK(strstr(spandrel_heap_error_text(), "layout"));
    given.layout = 5;
    given.limit = (size_t)1 << 30;
    heap = spandrel_heap_restart(path, &given);
    CHECK(heap && spandrel_heap_bytes(heap) == (size_t)64 << 20);
}

static void sizes(void) {
    for (size_t size = 0; size < 300000; size = size * 3 / 2 + 1) {
        unsigned char *object = spandrel_heap_malloc(heap, size), *zeroes = spandrel_heap_calloc(heap, 1, size);
        CHECK(object && zeroes && object != zeroes && (uintptr_t)object % 16 == 0);
        CHECK(spandrel_heap_usable_size(heap, object) >= size);
        for (size_t i = 0; i < size; i++) CHECK(zeroes[i] == 0);
        fill(object, size, 3);
        for (size_t bytes = 1; bytes < 1000000; bytes = bytes * 5 + 1) {
            object = spandrel_heap_realloc(heap, object, bytes);
            CHECK(object);
            check(object, size < bytes ? size : bytes, 3);
            size_t kept = size < bytes ? size : bytes;
            fill(object + kept, bytes - kept, (unsigned char)(3 + kept * 7));
            object = spandrel_heap_realloc(heap, object, size + 1);
            CHECK(object);
            check(object, size < bytes ? size : bytes, 3);
            fill(object, size, 3);
        }
        for (size_t align = 1; align <= 65536; align *= 2) {
            void *aligned = spandrel_heap_aligned_alloc(heap, align, size);
            CHECK(aligned && (uintptr_t)aligned % align == 0 && spandrel_heap_usable_size(heap, aligned) >= size);
            CHECK(spandrel_heap_free(heap, aligned) == 0);
        }
        CHECK(spandrel_heap_free(heap, zeroes) == 0);
        errno = 0;
        CHECK(spandrel_heap_realloc(heap, object, 0) == NULL && errno == 0);
    }
    void *made = spandrel_heap_realloc(heap, NULL, 100);
    CHECK(made && spandrel_heap_free(heap, made) == 0 && spandrel_heap_free(heap, NULL) == 0);
    FAILS(EINVAL, !spandrel_heap_aligned_alloc(heap, 3, 100));
    FAILS(EINVAL, !spandrel_heap_aligned_alloc(heap, 0, 100));
    FAILS(EINVAL, !spandrel_heap_aligned_alloc(heap, 131072, 100));
    FAILS(EINVAL, !spandrel_heap_malloc(heap, (size_t)-1));
    FAILS(EINVAL, !spandrel_heap_calloc(heap, (size_t)-1, 2));
    FAILS(ENOMEM, !spandrel_heap_malloc(heap, (size_t)2 << 30));
    CHECK(strstr(spandrel_heap_error_text(), "limit"));
    FAILS(EINVAL, !spandrel_heap_malloc(NULL, 16));
    FAILS(EINVAL, spandrel_heap_close(NULL) == -1);
}

/* What is no object says so, and nothing happens. */
static void wrong(spandrel_heap *other) {
    char local[64];
    unsigned char *small = spandrel_heap_malloc(heap, 100), *large = spandrel_heap_malloc(heap, 300000);
    unsigned char *medium = spandrel_heap_malloc(heap, 5000), *base = spandrel_heap_base(heap);
    void *theirs = spandrel_heap_malloc(other, 100), *outside = malloc(100);
    CHECK(small && medium && large && theirs && outside);
    fill(small, 100, 1);
    fill(medium, 5000, 2);
    fill(large, 300000, 4);
    void *none[] = {
        local, outside, theirs, base, base + 8, base + 16, base + 65536, base + 2 * 65536 + 8, base + 65536 * 9,
        base + spandrel_heap_bytes(heap) - 16, base + spandrel_heap_bytes(heap), base - 16, small + 1, small + 8,
        small + 16, medium + 16, medium + 4096, large + 16, large + 65536, (void *)16, (void *)((uintptr_t)0 - 16),
    };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        FAILS(EFAULT, spandrel_heap_free(heap, none[i]) == -1);
        CHECK(strstr(spandrel_heap_error_text(), "is no object") || strstr(spandrel_heap_error_text(), "free already"));
        FAILS(EFAULT, spandrel_heap_safe_free(heap, none[i]) == -1);
        FAILS(EFAULT, !spandrel_heap_realloc(heap, none[i], 200));
        FAILS(EFAULT, spandrel_heap_usable_size(heap, none[i]) == 0);
    }
    FAILS(EFAULT, spandrel_heap_set_root(heap, 1, local) == -1);
    FAILS(EINVAL, spandrel_heap_set_root(heap, SPANDREL_HEAP_ROOTS, small) == -1);
    FAILS(EINVAL, !spandrel_heap_get_root(heap, SPANDREL_HEAP_ROOTS));
    FAILS(EFAULT, spandrel_heap_offset(heap, local) == 0);
    FAILS(EFAULT, !spandrel_heap_at(heap, (uint64_t)(uintptr_t)small));
    FAILS(EFAULT, !spandrel_heap_at(heap, spandrel_heap_offset(heap, base) + spandrel_heap_bytes(heap)));
    FAILS(EFAULT, spandrel_heap_persist(heap, local, 8) == -1);
    FAILS(EFAULT, spandrel_heap_persist(heap, base, spandrel_heap_bytes(heap) + 1) == -1);
    CHECK(spandrel_heap_persist(heap, base, spandrel_heap_bytes(heap)) == 0);
    check(small, 100, 1);
    check(medium, 5000, 2);
    check(large, 300000, 4);
    unsigned char *all[] = {small, medium, large};
    for (int i = 0; i < 3; i++) {
        CHECK(spandrel_heap_free(heap, all[i]) == 0);
        FAILS(EFAULT, spandrel_heap_free(heap, all[i]) == -1);
    }
    free(outside);
}

static void *work(void *argument) {
    unsigned char seed = (unsigned char)(uintptr_t)argument;
    void *objects[64] = {0};
    uint64_t state = seed;
    for (int i = 0; i < 100000; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        size_t at = (size_t)(state >> 58), size = (size_t)(state >> 33) % (i % 100 ? 300 : 70000);
        if (objects[at]) CHECK(spandrel_heap_free(heap, objects[at]) == 0);
        objects[at] = spandrel_heap_malloc(heap, size);
        CHECK(objects[at]);
        memset(objects[at], seed, size);
    }
    for (int i = 0; i < 64; i++) CHECK(spandrel_heap_free(heap, objects[i]) == 0);
    /* Each thread has its own last failure. */
    FAILS(EINVAL, spandrel_heap_set_root(heap, 600u + seed, NULL) == -1);
    char text[16];
    snprintf(text, sizeof text, "root %d", 600 + seed);
    CHECK(strstr(spandrel_heap_error_text(), text));
    return NULL;
}

int main(int count, char **words) {
    CHECK(count == 2);
    char path[1000];
    CHECK(*spandrel_heap_error_text() == 0);
    options(words[1]);
    snprintf(path, sizeof path, "%s.other", words[1]);
    spandrel_heap *other = spandrel_heap_start(path, NULL);
    CHECK(other);
    sizes();
    wrong(other);
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    wrong(other);
    CHECK(spandrel_heap_close(heap) == 0 && spandrel_heap_close(other) == 0);
    return 0;
}
