/* Address space that was given back at a limit may be another's by the time of the next limit: what lies there stays. */
#include <sys/mman.h>
#include <sys/resource.h>

#include "abi.h"

enum { OBJECTS = 400000, BYTES = 600 };

static char *objects[OBJECTS];

/* The largest place without a mapping between two objects; 0: there is none of 8 MiB. Allocates nothing: a request that meets the place would have it forgotten. */
static uintptr_t hole(void) {
    static char text[4 * MIB];
    uintptr_t low = (uintptr_t)objects[OBJECTS / 4 - 1], high = (uintptr_t)objects[OBJECTS * 3 / 4];
    uintptr_t before = 0, found = 0, most = 8 * MIB;
    size_t bytes = 0;
    ssize_t part;
    int maps = open("/proc/self/maps", O_RDONLY);
    while ((part = read(maps, text + bytes, sizeof text - 1 - bytes)) > 0) bytes += part;
    close(maps);
    for (char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        char *end;
        uintptr_t from = strtoul(line, &end, 16), to = strtoul(end + 1, NULL, 16);
        if (before > low && before < high && from - before >= most) {
            most = from - before;
            found = before;
        }
        before = to;
    }
    return found;
}

int main(void) {
    for (int i = 0; i < OBJECTS; i++) {
        objects[i] = malloc(BYTES);
        CHECK(objects[i], "malloc");
        memset(objects[i], i, BYTES);
    }
    for (int i = OBJECTS / 4; i < OBJECTS * 3 / 4; i++) {
        free(objects[i]);
    }
    usleep(200000);
    malloc_trim(0);
    struct rlimit space = {100 * GIB, RLIM_INFINITY}, data = {8 * GIB, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_AS, &space) == 0, "setrlimit");
    uintptr_t found = hole();
    char *other = NULL;
    if (found) {
        other = mmap((void *)(found + 2 * MIB), MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        CHECK(other != MAP_FAILED, "mmap");
        memset(other, 0x55, MIB);
    }
    CHECK(setrlimit(RLIMIT_DATA, &data) == 0, "setrlimit");
    for (size_t i = 0; found && i < MIB; i++) CHECK(other[i] == 0x55, "byte %zu of another's mapping", i);
    printf("%s\n", found ? "a hole" : "no hole");
    for (int i = 0; i < OBJECTS / 4; i++) CHECK(objects[i][BYTES - 1] == (char)i, "object %d", i);
    return 0;
}
