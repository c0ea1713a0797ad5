/* A library in front of the allocator that puts a header before each object, as tools do that count memory, and
 * passes requests on to the next definition. */
#include "abi.h"

#define MARK 0x5ca1ab1e5ca1ab1eull

struct header {
    size_t mark, size;
    void *object;
    size_t unused;
};

static void *(*next_malloc)(size_t);
static void (*next_free)(void *);

static void *wrap(size_t align, size_t size) {
    if (!next_malloc) {
        *(void **)&next_free = dlsym(RTLD_NEXT, "free");
        *(void **)&next_malloc = dlsym(RTLD_NEXT, "malloc");
    }
    if (size > PTRDIFF_MAX - 2 * align - sizeof(struct header)) {
        errno = ENOMEM;
        return NULL;
    }
    char *object = next_malloc(sizeof(struct header) + align + size);
    if (!object) return NULL;
    uintptr_t at = ((uintptr_t)object + sizeof(struct header) + align - 1) & ~(uintptr_t)(align - 1);
    ((struct header *)at)[-1] = (struct header){MARK, size, object, 0};
    return (void *)at;
}

static struct header *header_of(void *object) {
    struct header *header = (struct header *)object - 1;
    CHECK(header->mark == MARK, "an object without a header: %p", object);
    return header;
}

void *malloc(size_t size) { return wrap(16, size); }

void free(void *object) {
    if (!object) return;
    struct header *header = header_of(object);
    header->mark = 0;
    next_free(header->object);
}

void *calloc(size_t count, size_t size) {
    size_t bytes;
    void *object = __builtin_mul_overflow(count, size, &bytes) ? NULL : wrap(16, bytes);
    return object ? memset(object, 0, bytes) : NULL;
}

void *realloc(void *object, size_t size) {
    void *moved = wrap(16, size);
    if (object && moved) {
        size_t old = header_of(object)->size;
        memcpy(moved, object, old < size ? old : size);
        free(object);
    }
    return moved;
}

void *memalign(size_t align, size_t size) { return wrap(align < 16 ? 16 : align, size); }
void *aligned_alloc(size_t align, size_t size) { return memalign(align, size); }
int posix_memalign(void **out, size_t align, size_t size) { return (*out = memalign(align, size)) ? 0 : ENOMEM; }
size_t malloc_usable_size(void *object) { return object ? header_of(object)->size : 0; }
