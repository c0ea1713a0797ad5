/* dlopen and dlclose of a library that allocates when it comes and goes and that passes memory across, also
 * while threads hammer the allocator. */
#include <pthread.h>

#include "abi.h"

static int stop;
static void *hammer(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) free(malloc(random_size(&seed, 1, 200 * KIB)));
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    for (uintptr_t i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, hammer, (void *)(i + 1)) == 0, "thread");
    for (int round = 0; round < 100; round++) {
        void *library = dlopen("./libdlopen_lib.so", round % 2 ? RTLD_NOW : RTLD_LAZY | RTLD_GLOBAL);
        CHECK(library != NULL, "dlopen: %s", dlerror());
        unsigned char *(*make)(size_t, uint64_t) = (unsigned char *(*)(size_t, uint64_t))dlsym(library, "library_make");
        void (*take)(unsigned char *, size_t, uint64_t) = (void (*)(unsigned char *, size_t, uint64_t))dlsym(library, "library_take");
        CHECK(make && take, "dlsym");
        for (size_t size = 10; size < 2 * MIB; size *= 9) {
            unsigned char *p = make(size, size);
            CHECK_PATTERN(p, size, size);
            p = realloc(p, size * 2);
            CHECK_PATTERN(p, size, size);
            free(p);
            p = malloc(size);
            fill_from(p, 0, size, size + 1);
            take(p, size, size + 1);
        }
        unsigned char *outlives = make(50000, 4);
        CHECK(dlclose(library) == 0, "dlclose");
        CHECK_PATTERN(outlives, 50000, 4);
        free(outlives);
    }
    CHECK(dlopen("./no-such-library.so", RTLD_NOW) == NULL && dlerror() != NULL, "dlopen of nothing");
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    return 0;
}
