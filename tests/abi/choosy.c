/* Allocates between 256 bytes and 4 KiB, and takes more time unless glibc serves just that: a job from which there is
 * something to learn. With an argument it takes the same always. */
#include <time.h>

#include "abi.h"

int main(int argc, char **argv) {
    (void)argv;
    uint64_t seed = 1;
    for (int i = 0; i < 20000; i++) {
        void *p = malloc(random_size(&seed, 300, 4000));
        CHECK(p != NULL, "malloc");
        free(p);
    }
    const char *mode = getenv("SPANDREL_MODE");
    CHECK(mode != NULL, "no mode");
    if (argc > 1 || strstr(mode, "256B-4KiB:sys") == NULL)
        while (clock() < CLOCKS_PER_SEC / 10) continue;
    puts("what a job prints is nobody's concern");
    return 0;
}
