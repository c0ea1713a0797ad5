/* An allocator whose functions the loader alone finds, for LD_PRELOAD: built with the older table of hashes alone (-Wl,--hash-style=sysv), in a version that is
 * hidden (-DHIDDEN, with a version script), or chosen by a function when it is bound (-DCHOSEN). Objects have a head, so that no other allocator can free them. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void __libc_free(void *);

struct head {
    void *from;
    size_t size;
    uint64_t mark, rest;
};

#define MARK 0x0ddba11ull

static struct head *head_of(void *object) {
    struct head *head = (struct head *)object - 1;
    if (head->mark != MARK) {
        static const char why[] = "odd_allocator: an object of another allocator\n";
        if (write(2, why, sizeof why - 1)) _exit(99);
        _exit(98);
    }
    return head;
}

static void *odd_aligned(size_t align, size_t size) {
    if (align < 32) align = 32;
    void *from = __libc_malloc(size + align + sizeof(struct head));
    if (!from) return NULL;
    uintptr_t at = ((uintptr_t)from + sizeof(struct head) + align - 1) & ~(uintptr_t)(align - 1);
    *((struct head *)at - 1) = (struct head){from, size, MARK, 0};
    return (void *)at;
}

static void *odd_malloc(size_t size) { return odd_aligned(32, size); }

static void *odd_calloc(size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
    void *object = odd_malloc(bytes);
    return object ? memset(object, 0, bytes) : NULL;
}

static void odd_free(void *object) {
    if (object) __libc_free(head_of(object)->from);
}

static void *odd_realloc(void *object, size_t size) {
    void *next = odd_malloc(size);
    if (!object || !next) return next;
    size_t before = head_of(object)->size;
    memcpy(next, object, before < size ? before : size);
    odd_free(object);
    return next;
}

static size_t odd_usable(void *object) { return object ? head_of(object)->size : 0; }

static int odd_posix(void **out, size_t align, size_t size) {
    *out = odd_aligned(align, size);
    return *out ? 0 : 12;
}

static void *odd_page(size_t size) { return odd_aligned(4096, size); }

#if defined CHOSEN
#define DEFINE(result, name, arguments, function) \
    static result (*choose_##name(void)) arguments { return function; } \
    result name arguments __attribute__((ifunc("choose_" #name)))
#else
#define DEFINE(result, name, arguments, function) result name arguments __attribute__((alias(#function)))
#endif

#if defined HIDDEN
#define VERSION(name) __asm__(".symver " #name ", " #name "@GLIBC_2.2.5, remove")
#define VERSION_16(name) __asm__(".symver " #name ", " #name "@GLIBC_2.16, remove")
VERSION(malloc);
VERSION(calloc);
VERSION(free);
VERSION(realloc);
VERSION(memalign);
VERSION_16(aligned_alloc);
VERSION(posix_memalign);
VERSION(valloc);
VERSION(malloc_usable_size);
#endif

DEFINE(void *, malloc, (size_t size), odd_malloc);
DEFINE(void *, calloc, (size_t count, size_t size), odd_calloc);
DEFINE(void, free, (void *object), odd_free);
DEFINE(void *, realloc, (void *object, size_t size), odd_realloc);
DEFINE(void *, memalign, (size_t align, size_t size), odd_aligned);
DEFINE(void *, aligned_alloc, (size_t align, size_t size), odd_aligned);
DEFINE(int, posix_memalign, (void **out, size_t align, size_t size), odd_posix);
DEFINE(void *, valloc, (size_t size), odd_page);
DEFINE(size_t, malloc_usable_size, (void *object), odd_usable);
