/* A program that uses spandrel.h, as C99, C11 and C++17: modes, scopes, allocators by number, statistics. */
#include <errno.h>
#include <spandrel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                \
    do {                                                                                \
        if (!(condition)) {                                                             \
            fprintf(stderr, "%s:%d: failed: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
            exit(1);                                                                    \
        }                                                                               \
    } while (0)

static void check_bytes(const void *object, int byte, size_t size) {
    const unsigned char *bytes = (const unsigned char *)object;
    size_t i;
    for (i = 0; i < size; i++) CHECK(bytes[i] == (unsigned char)byte);
}

static int owner_of_malloc(size_t size) {
    void *object = malloc(size);
    int owner;
    CHECK(object != NULL);
    owner = spandrel_owner(object);
    free(object);
    return owner;
}

static void modes(void) {
    static const char *const known[] = {"sys", "jemalloc", "mimalloc", "mmap", "template=brug", "switch",
                                        "template=0-1KiB:mimalloc,1KiB-64KiB:jemalloc,64KiB-:mmap",
                                        "switch=jemalloc,point=64KiB,threshold=3", "auto"};
    size_t i;
    for (i = 0; i < sizeof known / sizeof *known; i++) {
        char first[256];
        CHECK(spandrel_set_mode(known[i]) == 0);
        CHECK(strlen(spandrel_mode()) < sizeof first);
        strcpy(first, spandrel_mode());
        CHECK(strncmp(first, known[i], strcspn(known[i], "=")) == 0);
        /* The mode is given in the form that is read. */
        CHECK(spandrel_set_mode(first) == 0 && strcmp(spandrel_mode(), first) == 0);
    }
    CHECK(spandrel_set_mode("mmap") == 0);
    CHECK(spandrel_set_mode("fast") == EINVAL && spandrel_set_mode("") == EINVAL);
    CHECK(spandrel_set_mode("template=0-4KiB:sys") == EINVAL);
    CHECK(spandrel_set_mode(NULL) == EINVAL);
    CHECK(strcmp(spandrel_mode(), "mmap") == 0);

    CHECK(spandrel_set_mode("jemalloc") == 0 && owner_of_malloc(100) == SPANDREL_JEMALLOC);
    CHECK(spandrel_set_mode("mimalloc") == 0 && owner_of_malloc(100) == SPANDREL_MIMALLOC);
    CHECK(spandrel_set_mode("sys") == 0 && owner_of_malloc(100) == SPANDREL_SYS);
    CHECK(spandrel_set_mode("mmap") == 0 && owner_of_malloc(1000000) == SPANDREL_MMAP);
    /* The paper's template: jemalloc to 4 KiB, glibc to 64 KiB, page-mapped above. */
    CHECK(spandrel_set_mode("template=brug") == 0);
    CHECK(owner_of_malloc(4000) == SPANDREL_JEMALLOC);
    CHECK(owner_of_malloc(60000) == SPANDREL_SYS);
    CHECK(owner_of_malloc(70000) == SPANDREL_MMAP);
    CHECK(spandrel_set_mode("switch=jemalloc,point=64KiB") == 0);
    CHECK(owner_of_malloc(60000) == SPANDREL_JEMALLOC);
    CHECK(owner_of_malloc(70000) == SPANDREL_MMAP);
}

static void scopes(void) {
    int depth;
    CHECK(spandrel_set_mode("sys") == 0);
    CHECK(spandrel_scope_enter("jemalloc") == 0 && owner_of_malloc(100) == SPANDREL_JEMALLOC);
    CHECK(spandrel_scope_enter("mimalloc") == 0 && owner_of_malloc(100) == SPANDREL_MIMALLOC);
    CHECK(spandrel_scope_enter("fast") == EINVAL && owner_of_malloc(100) == SPANDREL_MIMALLOC);
    /* The process's mode does not reach into a scope. */
    CHECK(spandrel_set_mode("mmap") == 0 && owner_of_malloc(100) == SPANDREL_MIMALLOC);
    spandrel_scope_leave();
    CHECK(owner_of_malloc(100) == SPANDREL_JEMALLOC);
    spandrel_scope_leave();
    CHECK(owner_of_malloc(1000000) == SPANDREL_MMAP);
    CHECK(spandrel_set_mode("sys") == 0 && owner_of_malloc(100) == SPANDREL_SYS);
    for (depth = 0; depth < 24; depth++) CHECK(spandrel_scope_enter(depth % 2 ? "sys" : "jemalloc") == 0);
    CHECK(spandrel_scope_enter("sys") == EAGAIN);
    for (; depth > 0; depth--) {
        CHECK(owner_of_malloc(64) == (depth % 2 ? SPANDREL_JEMALLOC : SPANDREL_SYS));
        spandrel_scope_leave();
    }
    CHECK(owner_of_malloc(64) == SPANDREL_SYS);
    spandrel_scope_leave(); /* one too many does no harm */
    CHECK(owner_of_malloc(64) == SPANDREL_SYS);
}

static void by_number(void) {
    static const int built_in[] = {SPANDREL_SYS, SPANDREL_JEMALLOC, SPANDREL_MIMALLOC, SPANDREL_MMAP};
    int local = 0;
    size_t i, k;
    for (i = 0; i < 4; i++) {
        int from = built_in[i];
        void *p = spandrel_malloc_in(from, 5000);
        CHECK(p != NULL && spandrel_owner(p) == from);
        memset(p, 7, 5000);
        /* Through every allocator and back: contents come along. */
        for (k = 0; k < 4; k++) {
            size_t size = 5000 + 40000 * k;
            p = spandrel_realloc_in(built_in[k], p, size);
            CHECK(p != NULL && spandrel_owner(p) == built_in[k]);
            check_bytes(p, 7, 5000);
            p = spandrel_realloc_in(from, p, size * 2);
            CHECK(p != NULL && spandrel_owner(p) == from);
            check_bytes(p, 7, 5000);
        }
        p = realloc(p, 6000);
        CHECK(p != NULL);
        check_bytes(p, 7, 5000);
        free(p);
        p = spandrel_calloc_in(from, 300, 1000);
        CHECK(p != NULL && spandrel_owner(p) == from);
        check_bytes(p, 0, 300000);
        free(p);
        p = spandrel_aligned_alloc_in(from, 65536, 65536 * 2);
        CHECK(p != NULL && spandrel_owner(p) == from && ((size_t)p & 65535) == 0);
        free(p);
        p = spandrel_realloc_in(from, NULL, 100);
        CHECK(p != NULL && spandrel_owner(p) == from);
        free(p);
        errno = 0;
        CHECK(spandrel_malloc_in(from, (size_t)-1) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(spandrel_calloc_in(from, (size_t)-1, 16) == NULL && errno == ENOMEM);
    }
    errno = 0;
    CHECK(spandrel_malloc_in(99, 10) == NULL && errno == EINVAL);
    errno = 0;
    CHECK(spandrel_malloc_in(-1, 10) == NULL && errno == EINVAL);
    CHECK(spandrel_owner(&local) == SPANDREL_SYS && spandrel_owner(NULL) == SPANDREL_SYS);
}

static void statistics(void) {
    struct spandrel_stats before, after;
    unsigned char part[16];
    int i;
    void *p;
    CHECK(spandrel_stats(NULL, sizeof before) == EINVAL);
    spandrel_count_requests(1);
    CHECK(spandrel_set_mode("jemalloc") == 0);
    CHECK(spandrel_stats(&before, sizeof before) == 0 && before.counting == 1);
    for (i = 0; i < 1000; i++) free(malloc(100));
    p = malloc(100);
    CHECK(p != NULL);
    p = realloc(p, 100000);
    CHECK(p != NULL);
    CHECK(spandrel_stats(&after, sizeof after) == 0);
    CHECK(after.allocations[SPANDREL_JEMALLOC] - before.allocations[SPANDREL_JEMALLOC] >= 1001);
    CHECK(after.allocations[SPANDREL_JEMALLOC] - before.allocations[SPANDREL_JEMALLOC] < 1100);
    CHECK(after.allocated_bytes[SPANDREL_JEMALLOC] - before.allocated_bytes[SPANDREL_JEMALLOC] >= 100100);
    CHECK(after.frees[SPANDREL_JEMALLOC] - before.frees[SPANDREL_JEMALLOC] >= 1000);
    CHECK(after.reallocations[SPANDREL_JEMALLOC] - before.reallocations[SPANDREL_JEMALLOC] >= 1);
    free(p);
    CHECK(spandrel_stats(&before, sizeof before) == 0);
    p = spandrel_malloc_in(SPANDREL_MMAP, 10000000);
    CHECK(p != NULL && spandrel_stats(&after, sizeof after) == 0);
    CHECK(after.mmap_live_objects == before.mmap_live_objects + 1);
    CHECK(after.mmap_live_bytes >= before.mmap_live_bytes + 10000000);
    free(p);
    spandrel_count_requests(0);
    /* A caller from before a field was added passes a smaller size. */
    memset(part, 0xaa, sizeof part);
    CHECK(spandrel_stats((struct spandrel_stats *)(void *)part, 8) == 0);
    check_bytes(part + 8, 0xaa, 8);
    uint64_t value = 0;
    CHECK(spandrel_figure(NULL, &value) == EINVAL && spandrel_figure("live_bytes", NULL) == EINVAL);
    CHECK(spandrel_figure("no_such_bytes", &value) == ENOENT && value == 0);
    void *native = spandrel_malloc_in(SPANDREL_NATIVE, 3 << 20);
    memset(native, 1, 3 << 20);
    CHECK(spandrel_figure("live_bytes", &value) == 0 && value >= 3 << 20);
    CHECK(spandrel_figure("resident_bytes", &value) == 0 && value >= 3 << 20 && value < 1 << 30);
    CHECK(spandrel_figure("tables_bytes", &value) == 0 && value > 0 && value < 16 << 20);
    free(native);

    spandrel_stats_print();
}

static void monitor(void) {
    struct spandrel_object known, all[3];
    char *object = (char *)malloc(10), *other = (char *)malloc(10);
    CHECK(object != NULL && other != NULL);
    CHECK(spandrel_monitor_object(object, &known) == ENOENT && spandrel_monitor_object(object, NULL) == EINVAL);
    CHECK(spandrel_monitor_objects(NULL, 3) == 0);
    spandrel_monitor_start();
    for (size_t size = 100; size <= 100000; size *= 10) CHECK((object = (char *)realloc(object, size)) != NULL);
    CHECK((other = (char *)realloc(other, 5000)) != NULL);
    CHECK(spandrel_monitor_object(object, &known) == 0);
    CHECK(known.address == object && known.reallocations == 4 && known.size == 100000 && known.live == 1);
    CHECK(known.requested_bytes == 111100 && known.nanoseconds > 0 && known.moves >= 1);
    CHECK(known.allocator == spandrel_owner(object));
    CHECK(spandrel_monitor_object(object + 1, &known) == ENOENT);
    free(object);
    CHECK(spandrel_monitor_object(object, &known) == ENOENT);
    CHECK(spandrel_monitor_objects(all, 3) == 2);
    CHECK(all[0].reallocations == 4 && all[0].live == 0 && all[1].address == other && all[1].reallocations == 1);
    spandrel_monitor_stop();
    spandrel_monitor_stop();
    CHECK((other = (char *)realloc(other, 9000)) != NULL);
    spandrel_monitor_start();
    CHECK(spandrel_monitor_object(other, &known) == ENOENT && spandrel_monitor_objects(all, 3) == 0);
    spandrel_monitor_stop();
    free(other);
}

int main(void) {
    CHECK(spandrel_version() != NULL && spandrel_version()[0] >= '0' && spandrel_version()[0] <= '9');
    modes();
    scopes();
    by_number();
    statistics();
    monitor();
    return 0;
}
