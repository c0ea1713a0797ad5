/* A library is loaded into a namespace of its own (dlmopen), where another C library serves it. Each side frees
 * what it allocated. */
#include "abi.h"

int main(int count, char **words) {
    CHECK(count == 2, "arguments");
    for (int i = 0; i < 2000; i++) CHECK(malloc(300), "malloc");
    void *library = dlmopen(LM_ID_NEWLM, words[1], RTLD_NOW);
    CHECK(library, "%s", dlerror());
    char *(*grown)(size_t) = (char *(*)(size_t))dlsym(library, "grown");
    void (*drop)(void *) = (void (*)(void *))dlsym(library, "drop");
    CHECK(grown && drop, "%s", dlerror());
    for (int i = 0; i < 100; i++) {
        char *object = grown(4 * MIB);
        CHECK(object && object[4 * MIB - 1] == 1, "an object of the other side");
        char *own = malloc(MIB);
        CHECK(own, "malloc");
        memset(own, 1, MIB);
        free(own);
        drop(object);
    }
    puts("ok");
}
