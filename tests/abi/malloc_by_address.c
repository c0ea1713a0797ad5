/* A program at a fixed address that takes the addresses of malloc and free, as node does: it has stubs of these names, and defines neither. */
#include <dlfcn.h>

#include "abi.h"

int main(void) {
    void *(*volatile make)(size_t) = malloc;
    void (*volatile give_back)(void *) = free;
    for (size_t size = 1; size <= 4 * MIB; size *= 3) {
        unsigned char *object = make(size);
        CHECK(object != NULL, "malloc(%zu) by its address", size);
        fill_from(object, 0, size, 1);
        object = realloc(object, 2 * size);
        CHECK(object != NULL && first_difference(object, 0, size, 1) == size, "contents");
        give_back(object);
    }
    puts("ok");
    return 0;
}
