/* Under a hard limit of 64 MiB: no request for more succeeds, by whatever function, whoever has the object. */
#include "abi.h"

#define MORE (800 * MIB)

int main(void) {
    CHECK(malloc(MORE) == NULL, "malloc");
    CHECK(calloc(1, MORE) == NULL, "calloc");
    CHECK(aligned_alloc(64, MORE) == NULL, "aligned_alloc");
    for (size_t size = 100; size < 200 * KIB; size *= 7) {
        char *object = malloc(size);
        CHECK(object != NULL, "malloc of %zu", size);
        memset(object, 1, size);
        errno = 0;
        CHECK(realloc(object, MORE) == NULL && errno == ENOMEM, "realloc from %zu", size);
        CHECK(object[0] == 1 && object[size - 1] == 1, "the object of %zu is as it was", size);
        free(object);
    }
    return 0;
}
