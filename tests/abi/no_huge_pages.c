/* With huge pages switched off for the process: contents and memory are as ever. */
#include <sys/prctl.h>

#include "abi.h"

int main(int argc, char **argv) {
    if (argc == 1) {
        CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0, "PR_SET_THP_DISABLE");
        execl("/proc/self/exe", argv[0], "without", NULL);
        CHECK(0, "exec");
    }
    CHECK(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1, "PR_GET_THP_DISABLE");
    unsigned char *p = NULL;
    size_t old = 0;
    for (size_t size = 4096; size <= 128 * MIB; size *= 2) {
        p = realloc(p, size);
        CHECK(p != NULL, "realloc(%zu)", size);
        fill_from(p, old, size, 1);
        old = size;
    }
    CHECK_PATTERN(p, old, 1);
    free(p);
    /* Sparse use costs the pages that were used. */
    size_t before = resident_bytes();
    p = malloc(GIB);
    CHECK(p != NULL, "1 GiB");
    for (size_t i = 0; i < GIB; i += 16 * MIB) p[i] = 1;
    size_t after = resident_bytes();
    CHECK(after < before + 64 * MIB, "%zu MiB resident for 64 pages", (after - before) / MIB);
    free(p);
    return 0;
}
