/* Live objects of 256 KiB, 32,000 or as many as the argument says: the kernel's limit of mappings (vm.max_map_count, 65,530) is not approached,
 * not with all of them live, not with holes, not after they have grown. */
#include "abi.h"

enum { MOST = 32000 };
static unsigned char *objects[MOST];

static void check_mappings(const char *when) {
    size_t mappings = count_mappings();
    /* Half of the limit leaves the program its own. */
    CHECK(mappings < 32000, "%zu mappings %s", mappings, when);
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : MOST;
    for (int i = 0; i < count; i++) {
        objects[i] = malloc(256 * KIB);
        CHECK(objects[i] != NULL, "object %d", i);
        fill_from(objects[i], 0, 64, (uint64_t)i);
    }
    if (on_spandrel()) check_mappings("with all live");
    for (int i = 0; i < count; i += 2) {
        free(objects[i]);
        objects[i] = NULL;
    }
    if (on_spandrel()) check_mappings("with every other one freed");
    for (int i = 1; i < count; i += 4) {
        objects[i] = realloc(objects[i], 400 * KIB);
        CHECK(objects[i] != NULL, "growing object %d", i);
        CHECK(first_difference(objects[i], 0, 64, (uint64_t)i) == 64, "object %d", i);
    }
    if (on_spandrel()) check_mappings("with a quarter grown");
    for (int i = 0; i < count; i += 2) {
        objects[i] = malloc(200 * KIB);
        CHECK(objects[i] != NULL, "object %d again", i);
        fill_from(objects[i], 0, 64, (uint64_t)i);
    }
    for (int i = 0; i < count; i++) {
        CHECK(first_difference(objects[i], 0, 64, (uint64_t)i) == 64, "object %d", i);
        free(objects[i]);
    }
    check_mappings("after all were freed");
    return 0;
}
