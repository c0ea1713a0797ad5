/* A program whose plug-in, opened with RTLD_DEEPBIND, frees and resizes what the program allocated, and the other way
 * round. usage: deepbind LIBRARY [sealed]: the C library's table of symbols cannot be changed. */
#include <link.h>
#include <sys/syscall.h>

#include "abi.h"

#ifndef SYS_mseal
#define SYS_mseal 462
#endif

/* The plug-in defines the same. */
int which(void) { return 1; }

static int seal_libc(struct dl_phdr_info *info, size_t size, void *sealed) {
    if (!strstr(info->dlpi_name, "/libc.so.6")) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || part->p_flags & PF_W) continue;
        uintptr_t from = info->dlpi_addr + part->p_vaddr, to = (from + part->p_memsz + 4095) & ~4095ul;
        *(int *)sealed = syscall(SYS_mseal, from & ~4095ul, to - (from & ~4095ul), 0) == 0;
    }
    return 1;
}

static void *function(void *library, const char *name) {
    void *found = dlsym(library, name);
    CHECK(found, "%s", name);
    return found;
}

static void give_and_take(void *library, size_t size) {
    char *(*copy_of)(const char *) = (char *(*)(const char *))function(library, "copy_of");
    char *(*line_of)(FILE *) = (char *(*)(FILE *))function(library, "line_of");
    void (*drop)(void *) = (void (*)(void *))function(library, "drop");
    void *(*grown)(void *, size_t) = (void *(*)(void *, size_t))function(library, "grown");
    void *(*array_of)(void *, size_t, size_t) = (void *(*)(void *, size_t, size_t))function(library, "array_of");
    void *(*zeroed)(size_t) = (void *(*)(size_t))function(library, "zeroed");
    void *(*aligned)(size_t, size_t) = (void *(*)(size_t, size_t))function(library, "aligned");
    size_t (*usable)(void *) = (size_t (*)(void *))function(library, "usable");

    free(copy_of("text"));
    drop(strdup("text"));
    FILE *stream = fopen("/proc/self/status", "r");
    CHECK(stream, "status");
    free(line_of(stream));
    drop(line_of(stream));
    fclose(stream);

    char *object = malloc(size);
    fill_from(object, 0, size, 7);
    CHECK(usable(object) >= size, "usable size %zu of %zu", usable(object), size);
    object = grown(object, 2 * size);
    CHECK_PATTERN(object, size, 7);
    object = array_of(object, 3, size);
    CHECK_PATTERN(object, size, 7);
    object = realloc(object, size / 2 + 1);
    CHECK_PATTERN(object, size / 2 + 1, 7);
    drop(object);

    object = zeroed(size);
    for (size_t i = 0; i < size; i++) CHECK(object[i] == 0, "zeroed");
    free(object);
    object = aligned(4096, size);
    CHECK(is_aligned(object, 4096), "aligned");
    free(realloc(object, 3 * size));
}

int main(int count, char **words) {
    int sealed = 0;
    if (count > 2) {
        dl_iterate_phdr(seal_libc, &sealed);
        if (!sealed) puts("this kernel seals no memory");
    }
    /* Some allocators serve a process differently when it is young. */
    for (int round = 0; round < 2; round++) {
        void *library = dlopen(words[1], (round ? RTLD_NOW : RTLD_LAZY) | RTLD_DEEPBIND);
        CHECK(library, "%s", dlerror());
        int (*which_is_bound)(void) = (int (*)(void))function(library, "which_is_bound");
        CHECK(which_is_bound() == (sealed && on_spandrel() ? 1 : 2), "bound to %d", which_is_bound());
        for (size_t size = 8; size <= 8 * MIB; size *= 4) give_and_take(library, size);
        int (*children)(void) = (int (*)(void))function(library, "children");
        CHECK(children() > 0, "handlers of fork");
        for (int i = 0; i < 2000; i++) CHECK(malloc(300), "malloc");
    }
    puts("ok");
}
