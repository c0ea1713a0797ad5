/* Threads with the smallest stack that the C library allows (16 KiB) call the allocator; so does code deep in
 * a recursion with little stack left. */
#include <limits.h>
#include <pthread.h>

#include "abi.h"

static void use(uint64_t seed, int count) {
    for (int i = 0; i < count; i++) {
        size_t size = random_size(&seed, 1, i % 16 == 0 ? 4 * MIB : 16 * KIB);
        unsigned char *p = i % 3 == 0 ? calloc(1, size) : malloc(size);
        CHECK(p != NULL, "malloc(%zu)", size);
        p[0] = 7;
        p = realloc(p, size * 2 + 1);
        CHECK(p != NULL && p[0] == 7, "realloc");
        void *aligned = memalign(4096, size);
        CHECK(aligned != NULL, "memalign");
        free(p);
        free(aligned);
    }
}

static void *thread(void *argument) {
    use((uint64_t)(uintptr_t)argument, 50);
    return malloc(10);
}

/* The native allocator starts here in modes that do without it. */
static void *start_native(void *argument) {
    (void)argument;
    void *(*malloc_in)(int, size_t) = (void *(*)(int, size_t))dlsym(RTLD_DEFAULT, "spandrel_malloc_in");
    void *object = malloc_in == NULL ? malloc(100) : malloc_in(5, 100);
    CHECK(object != NULL, "spandrel_malloc_in");
    return object;
}

static void *deep(void *argument) {
    size_t left = (size_t)(uintptr_t)argument;
    volatile char frame[1024];
    frame[0] = 1;
    if (left > 12 * KIB) return deep((void *)(uintptr_t)(left - 1200));
    use(3, 20);
    (void)frame[0];
    return NULL;
}

int main(void) {
    for (uintptr_t n = 0; n < 300; n++) {
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        CHECK(pthread_attr_setstacksize(&attributes, 16 * KIB) == 0, "16 KiB stack");
        pthread_t thread_id;
        void *(*work)(void *) = n == 0 ? start_native : thread;
        CHECK(pthread_create(&thread_id, &attributes, work, (void *)(n + 1)) == 0, "thread");
        void *result;
        CHECK(pthread_join(thread_id, &result) == 0, "join");
        free(result);
        pthread_attr_destroy(&attributes);
    }
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    CHECK(pthread_attr_setstacksize(&attributes, 256 * KIB) == 0, "256 KiB stack");
    pthread_t thread_id;
    CHECK(pthread_create(&thread_id, &attributes, deep, (void *)(uintptr_t)(240 * KIB)) == 0, "thread");
    CHECK(pthread_join(thread_id, NULL) == 0, "join");
    return 0;
}
