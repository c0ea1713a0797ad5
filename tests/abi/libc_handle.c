/* Functions of the C library by the handle of a file, as bindings of other languages look them up: the file may be the
 * C library itself, or any that depends on it. */
#include "abi.h"

static void by_handle(void *handle, const char *what) {
    CHECK(handle, "%s: %s", what, dlerror());
    void *(*by_malloc)(size_t) = (void *(*)(size_t))dlsym(handle, "malloc");
    void (*by_free)(void *) = (void (*)(void *))dlsym(handle, "free");
    void *(*by_realloc)(void *, size_t) = (void *(*)(void *, size_t))dlsym(handle, "realloc");
    char *(*by_strdup)(const char *) = (char *(*)(const char *))dlsym(handle, "strdup");
    size_t (*by_usable)(void *) = (size_t (*)(void *))dlsym(handle, "malloc_usable_size");
    int (*by_trim)(size_t) = (int (*)(size_t))dlsym(handle, "malloc_trim");
    CHECK(by_malloc && by_free && by_realloc && by_strdup && by_usable && by_trim, "%s", what);
    for (size_t size = 16; size <= 4 * MIB; size *= 4) {
        by_free(malloc(size));
        free(by_malloc(size));
        by_free(by_realloc(malloc(size), 2 * size));
        char *object = realloc(by_malloc(size), 3 * size);
        CHECK(by_usable(object) >= 3 * size, "%s: usable size", what);
        by_free(object);
        by_free(strdup("text"));
        by_free(by_strdup("text"));
        free(by_strdup("text"));
    }
    enum { OBJECTS = 200000 };
    static char *objects[OBJECTS];
    for (int i = 0; i < OBJECTS; i++) {
        objects[i] = malloc(300);
        memset(objects[i], 1, 300);
    }
    size_t before = resident();
    for (int i = 0; i < OBJECTS; i++) free(objects[i]);
    by_trim(0);
    size_t after = resident();
    CHECK(after + 30 * MIB < before, "%s: trimmed from %zu to %zu", what, before, after);
}

int main(void) {
    free(malloc(100));
    by_handle(dlopen("libc.so.6", RTLD_LAZY), "libc");
    by_handle(dlopen("libm.so.6", RTLD_LAZY | RTLD_LOCAL), "libm, which depends on it");
    by_handle(dlopen(NULL, RTLD_LAZY), "the program");
    by_handle(dlmopen(LM_ID_BASE, "libc.so.6", RTLD_LAZY), "libc in the first namespace");
    puts("ok");
}
