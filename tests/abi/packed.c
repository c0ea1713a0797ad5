/* Objects between small and large lie side by side on huge pages where such objects use their pages, and have pages of their own where
   they do not. */
#include "abi.h"

enum { COUNT = 64 };

static int by_address(const void *a, const void *b) {
    uintptr_t one = *(const uintptr_t *)a, other = *(const uintptr_t *)b;
    return (one > other) - (one < other);
}

/* Objects whose neighbour begins right behind their end. */
static size_t side_by_side(char **objects, size_t size) {
    uintptr_t sorted[COUNT];
    for (size_t i = 0; i < COUNT; i++) sorted[i] = (uintptr_t)objects[i];
    qsort(sorted, COUNT, sizeof *sorted, by_address);
    size_t count = 0;
    for (size_t i = 1; i < COUNT; i++) count += sorted[i] - sorted[i - 1] < size + 64 * KIB;
    return count;
}

static int has_huge_pages(void) {
    char line[128] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    if (file == NULL) return 0;
    char *read = fgets(line, sizeof line, file);
    fclose(file);
    return read != NULL && strstr(line, "[never]") == NULL;
}

int main(void) {
    if (!on_spandrel()) return 0;
    /* Sizes of two kinds: what is known of one says nothing of the other. */
    const size_t sparse = 300 * KIB, dense = 600 * KIB;
    char *objects[COUNT];
    size_t before = resident();
    for (size_t i = 0; i < COUNT; i++) {
        objects[i] = malloc(sparse);
        CHECK(objects[i] != NULL, "malloc(%zu)", sparse);
        *(volatile char *)objects[i] = 1;
    }
    size_t taken = resident() - before;
    CHECK(side_by_side(objects, sparse) < COUNT / 8, "%zu sparse objects are packed", side_by_side(objects, sparse));
    CHECK(taken < COUNT * 16 * KIB + 2 * MIB, "%zu KiB for a page each", taken / KIB);
    for (size_t i = 0; i < COUNT; i++) free(objects[i]);

    for (size_t i = 0; i < COUNT; i++) {
        objects[i] = malloc(dense);
        CHECK(objects[i] != NULL, "malloc(%zu)", dense);
        memset(objects[i], 1, dense);
    }
    if (has_huge_pages()) CHECK(side_by_side(objects, dense) > COUNT / 2, "%zu dense objects are packed", side_by_side(objects, dense));
    /* One that grows moves to a place with room, with its contents, and all can be freed in any order. */
    for (size_t i = 0; i < COUNT; i += 2) {
        objects[i] = realloc(objects[i], 2 * dense);
        CHECK(objects[i] != NULL, "realloc(%zu)", 2 * dense);
        CHECK(objects[i][0] == 1 && objects[i][dense - 1] == 1, "contents of object %zu", i);
    }
    for (size_t i = 0; i < COUNT; i++) free(objects[i]);
    return 0;
}
