/* Freed memory goes back: at once when asked (malloc_trim), by itself within seconds of light traffic. */
#include "abi.h"

static size_t used_by(size_t count, size_t size) {
    void **objects = malloc(count * sizeof *objects);
    for (size_t i = 0; i < count; i++) {
        objects[i] = malloc(size);
        CHECK(objects[i] != NULL, "malloc(%zu)", size);
        memset(objects[i], 1, size);
    }
    size_t peak = resident_bytes();
    for (size_t i = 0; i < count; i++) free(objects[i]);
    free(objects);
    return peak;
}

int main(void) {
    size_t start = resident_bytes();
    const size_t shapes[][2] = {{512, MIB}, {16, 32 * MIB}, {2048, 200 * KIB}, {400000, 700}, {20000, 20 * KIB}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        size_t peak = used_by(shapes[i][0], shapes[i][1]);
        malloc_trim(0);
        size_t after = resident_bytes();
        /* Other allocators keep their own time; this one promises that a trim is heard. */
        if (on_spandrel())
            CHECK(after < start + (peak - start) / 2, "%zu x %zu: %zu MiB at the peak, %zu after malloc_trim", shapes[i][0], shapes[i][1], peak / MIB, after / MIB);
    }
    size_t peak = used_by(256, 2 * MIB);
    size_t after = 0;
    for (int tenth = 0; tenth < 200; tenth++) {
        for (int i = 0; i < 100; i++) {
            memset(malloc(100), 1, 100);
            free(malloc(3 * MIB));
            free(malloc((size_t)i * 100));
        }
        after = resident_bytes();
        if (after < start + 128 * MIB) return 0;
        usleep(100000);
    }
    CHECK(0, "%zu MiB at the peak, still %zu MiB 20 s after everything was freed", peak / MIB, after / MIB);
}
