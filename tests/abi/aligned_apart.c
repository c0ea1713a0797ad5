/* Small objects with a large alignment: the room between them costs no memory. */
#include "abi.h"

enum { COUNT = 5000 };
static char *objects[COUNT];

int main(void) {
    memset(objects, 0, sizeof objects);
    for (size_t align = 16 * KIB; align <= 256 * KIB; align *= 4) {
        size_t before = resident();
        for (int i = 0; i < COUNT; i++) {
            CHECK(posix_memalign((void **)&objects[i], align, 4 * KIB) == 0, "object %d aligned to %zu", i, align);
            CHECK(is_aligned(objects[i], align), "%p for %zu", (void *)objects[i], align);
            memset(objects[i], 1, 4 * KIB);
        }
        size_t taken = resident() - before, live = COUNT * 4 * KIB;
        if (on_spandrel()) CHECK(taken < live + live / 2, "%zu KiB for %zu KiB aligned to %zu", taken / KIB, live / KIB, align);
        for (int i = 0; i < COUNT; i++) free(objects[i]);
    }
    return 0;
}
