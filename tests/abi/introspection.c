/* mallinfo2, mallinfo, malloc_info, malloc_stats, mallopt, malloc_trim, malloc_usable_size. */
#include <sys/mman.h>

#include "abi.h"

int main(void) {
    CHECK(malloc_usable_size(NULL) == 0, "malloc_usable_size(NULL)");

    if (on_spandrel()) {
        /* Far less than the first huge pages have room for. */
        static void *small[5000];
        for (int i = 0; i < 5000; i++) CHECK(small[i] = malloc(100), "malloc");
        for (int i = 0; i < 5000; i++) memset(small[i], 1, 100);
        struct mallinfo2 few = mallinfo2();
        size_t used = few.uordblks + few.hblkhd;
        CHECK(used >= 500000, "mallinfo2: %zu bytes in use with 500,000 live", used);
        for (int i = 0; i < 5000; i++) free(small[i]);
    }

    void *objects[256];
    for (int i = 0; i < 256; i++) {
        objects[i] = malloc(64 * KIB);
        CHECK(objects[i] != NULL, "malloc");
        memset(objects[i], 1, 64 * KIB);
    }
    struct mallinfo2 full = mallinfo2();
    if (on_spandrel()) {
        /* The program's own mappings are not objects. */
        void *own = mmap(NULL, 100 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        CHECK(own != MAP_FAILED, "mmap");
        struct mallinfo2 beside = mallinfo2();
        size_t before = full.arena + full.hblkhd, with = beside.arena + beside.hblkhd;
        CHECK(with < before + 10 * MIB, "mallinfo2: %zu bytes, and %zu with 100 MiB of the program's own", before, with);
        munmap(own, 100 * MIB);

        size_t live = full.uordblks + full.hblkhd;
        CHECK(live >= 16 * MIB, "mallinfo2: %zu bytes in use with 16 MiB live", live);
        CHECK(live < 4 * GIB, "mallinfo2: %zu bytes in use with 16 MiB live", live);
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    struct mallinfo old = mallinfo();
    (void)old;
#pragma GCC diagnostic pop

    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    CHECK(memory != NULL, "open_memstream");
    errno = 0;
    CHECK(malloc_info(0, memory) == 0, "malloc_info");
    fclose(memory);
    CHECK(length > 0 && strstr(text, "<malloc") != NULL, "malloc_info wrote: %s", text);
    free(text);

    int refused = malloc_info(1, stderr);
    CHECK(refused != 0, "malloc_info with an unknown option returned %d", refused);

    malloc_stats();
    int known = mallopt(M_MMAP_THRESHOLD, 1 << 20);
    CHECK(known == 0 || known == 1, "mallopt = %d", known);
    known = mallopt(M_ARENA_MAX, 2);
    CHECK(known == 0 || known == 1, "mallopt = %d", known);

    for (int i = 0; i < 256; i++) free(objects[i]);
    int trimmed = malloc_trim(0);
    CHECK(trimmed == 0 || trimmed == 1, "malloc_trim = %d", trimmed);
    const char *mode = getenv("SPANDREL_MODE");
    if (mode && (strcmp(mode, "auto") == 0 || strcmp(mode, "mmap") == 0)) {
        /* Programs trim until there is nothing left. glibc's own never says so. */
        for (int i = 0; trimmed && i < 100; i++) trimmed = malloc_trim(0);
        CHECK(trimmed == 0, "malloc_trim(0) always finds something");
    }
    trimmed = malloc_trim(1 << 20);
    CHECK(trimmed == 0 || trimmed == 1, "malloc_trim = %d", trimmed);
    void *after = malloc(1000);
    CHECK(after != NULL, "malloc after trim");
    free(after);
    return 0;
}
