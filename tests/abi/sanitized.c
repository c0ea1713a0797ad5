/* Under a sanitizer, whose allocator is a part of the program. usage: sanitized [wrong]: frees an object and reads it. */
#include <pthread.h>

#include "abi.h"

static void *some_requests(void *unused) {
    uint64_t seed = (uint64_t)(uintptr_t)&unused;
    for (int i = 0; i < 2000; i++) {
        size_t size = random_size(&seed, 1, i % 100 ? 4 * KIB : 2 * MIB);
        char *object = malloc(size);
        memset(object, i, size);
        object = realloc(object, size + 100);
        CHECK(object[size - 1] == (char)i, "contents");
        free(object);
        free(strdup("text"));
    }
    return NULL;
}

int main(int count, char **words) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, some_requests, NULL) == 0, "a thread");
    some_requests(NULL);
    pthread_join(thread, NULL);
    puts("ok");
    fflush(stdout);
    if (count > 1 && !strcmp(words[1], "wrong")) {
        char *volatile object = malloc(100);
        free(object);
        return object[50] != 0;
    }
    return 0;
}
