/* The library itself opened late, as a plug-in: it loads, answers, and its own functions give usable memory.
 * Argument: the library. */
#include <sys/wait.h>
#include <unistd.h>

#include "abi.h"

int main(int argc, char **argv) {
    CHECK(argc == 2, "arguments");
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL, "dlopen: %s", dlerror());
    const char *(*version)(void) = (const char *(*)(void))dlsym(library, "spandrel_version");
    void *(*its_malloc)(size_t) = (void *(*)(size_t))dlsym(library, "malloc");
    void *(*its_realloc)(void *, size_t) = (void *(*)(void *, size_t))dlsym(library, "realloc");
    void (*its_free)(void *) = (void (*)(void *))dlsym(library, "free");
    CHECK(version && its_malloc && its_realloc && its_free, "symbols");
    CHECK(version()[0] >= '0' && version()[0] <= '9', "version %s", version());
    for (size_t size = 1; size < 64 * MIB; size *= 3) {
        unsigned char *p = its_malloc(size);
        CHECK(p != NULL, "malloc(%zu)", size);
        fill_from(p, 0, size, 1);
        p = its_realloc(p, size * 2);
        CHECK(p != NULL, "realloc");
        CHECK_PATTERN(p, size, 1);
        its_free(p);
        /* What the program's own allocator gave out is known for what it is. */
        its_free(malloc(size));
    }
    /* Closing takes nothing away: objects, fork handlers and threads' data are still there. */
    unsigned char *kept = its_malloc(1000);
    CHECK(dlclose(library) == 0, "dlclose: %s", dlerror());
    pid_t child = fork();
    if (child == 0) _exit(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "fork after dlclose: status %#x", status);
    fill_from(kept, 0, 1000, 1);
    its_free(kept);
    return 0;
}
