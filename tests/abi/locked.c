/* mlockall, now and for the future, does not make the process lock what it only reserved. */
#include <sys/mman.h>
#include <sys/resource.h>

#include "abi.h"

static void use(void) {
    uint64_t seed = 1;
    void *objects[500];
    for (int i = 0; i < 500; i++) {
        size_t size = random_size(&seed, 1, i % 50 == 0 ? 4 * MIB : 16 * KIB);
        objects[i] = malloc(size);
        CHECK(objects[i] != NULL, "malloc(%zu)", size);
        memset(objects[i], 1, size);
    }
    unsigned char *p = NULL;
    for (size_t size = 4096; size <= 32 * MIB; size *= 2) {
        p = realloc(p, size);
        CHECK(p != NULL, "realloc(%zu)", size);
        p[size - 1] = 1;
    }
    free(p);
    for (int i = 0; i < 500; i++) free(objects[i]);
}

int main(void) {
    use();
    /* An unprivileged process that was given a limit sees it compared with its address space. */
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        CHECK(errno == ENOMEM || errno == EPERM, "mlockall");
        printf("mlockall is not permitted here\n");
        use();
        return 0;
    }
    size_t resident = resident_bytes();
    CHECK(resident < 2 * GIB, "%zu MiB resident after mlockall", resident / MIB);
    use();
    resident = resident_bytes();
    CHECK(resident < 2 * GIB, "%zu MiB resident after use", resident / MIB);
    CHECK(munlockall() == 0, "munlockall");
    use();
    return 0;
}
