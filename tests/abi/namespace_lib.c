/* A library for a namespace of its own, with a C library of its own. */
#include "abi.h"

char *grown(size_t size) {
    char *object = malloc(16);
    for (size_t n = 32; n <= size; n *= 2) {
        object = realloc(object, n);
        if (!object) return NULL;
        object[n - 1] = 1;
    }
    return object;
}

void drop(void *object) { free(object); }
