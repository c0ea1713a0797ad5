/* Where the kernel has huge pages wherever one fits, an allocator that leaves space between objects takes many times what they use. */
#include "abi.h"

/* The library's variables, of which the first in use would take a huge page. */
static size_t huge_in_library(void) {
    FILE *maps = fopen("/proc/self/smaps", "r");
    CHECK(maps != NULL, "smaps");
    char line[512];
    size_t kib = 0, sum = 0;
    int behind = 0;
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) {
            /* The variables that are zero at first lie behind the file's own mappings, without a name. */
            int named = strchr(line, '/') != NULL || strchr(line, '[') != NULL;
            behind = strstr(line, "libspandrel") != NULL || (behind && !named);
            if (behind && !named) behind = 2;
        } else if (behind == 2 && sscanf(line, "AnonHugePages: %zu", &kib) == 1) {
            sum += kib;
        }
    }
    fclose(maps);
    return sum;
}

int main(void) {
    if (on_spandrel()) CHECK(huge_in_library() == 0, "%zu KiB in huge pages", huge_in_library());
    const size_t shapes[][2] = {{3000, 20 * KIB}, {500, 40 * KIB}, {500, 200 * KIB}, {100, MIB}, {10, 5 * MIB + MIB / 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        size_t count = shapes[i][0], size = shapes[i][1];
        void **objects = malloc(count * sizeof *objects);
        size_t before = resident();
        for (size_t j = 0; j < count; j++) {
            objects[j] = malloc(size);
            CHECK(objects[j] != NULL, "malloc(%zu)", size);
            memset(objects[j], 1, size);
        }
        /* What was free before may have gone back meanwhile. */
        size_t after = resident(), taken = after > before ? after - before : 0, used = count * size;
        /* What the first shape brings with it; a huge page that is begun; the headers of other allocators. */
        if (on_spandrel()) CHECK(taken < used + used / 4 + 12 * MIB, "%zu x %zu: %zu MiB for %zu", count, size, taken / MIB, used / MIB);
        for (size_t j = 0; j < count; j++) free(objects[j]);
        free(objects);
    }
    return 0;
}
