/* Two faults that memcheck finds, beside requests that are right. */
#include "abi.h"

int main(void) {
    char *volatile object = malloc(100);
    for (int i = 0; i < 3000; i++) {
        char *other = malloc((size_t)i);
        other = realloc(other, (size_t)(2 * i + 1));
        other[2 * i] = 1;
        free(other);
    }
    free(calloc(1, MIB));
    object[100] = 1;
    free(object);
    volatile char gone = object[3];
    return 0 * gone;
}
