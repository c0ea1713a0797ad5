/* Under a limit of address space or of data: the program starts, allocates until it is refused with ENOMEM,
 * gives memory back and goes on. Arguments: "as" or "data", and the limit in bytes. */
#include <pthread.h>
#include <sys/resource.h>

#include "abi.h"

static void basics(void) {
    uint64_t seed = 1;
    for (int i = 0; i < 20000; i++) {
        size_t size = random_size(&seed, 1, i % 100 == 0 ? 4 * MIB : 4 * KIB);
        unsigned char *p = malloc(size);
        CHECK(p != NULL, "malloc(%zu) under the limit", size);
        fill_from(p, 0, size < 256 ? size : 256, 1);
        p = realloc(p, size * 2);
        CHECK(p != NULL, "realloc");
        CHECK(first_difference(p, 0, size < 256 ? size : 256, 1) == (size < 256 ? size : 256), "contents");
        free(p);
    }
}

/* Until refused, in objects of one size; every object is used. Gives the number of bytes that were to be had. */
static size_t exhaust(size_t size, size_t limit) {
    struct link { struct link *next; } *list = NULL;
    size_t total = 0;
    for (;;) {
        errno = 0;
        struct link *p = malloc(size);
        if (p == NULL) break;
        p->next = list;
        list = p;
        ((unsigned char *)p)[size - 1] = 1;
        total += size;
        CHECK(total <= limit + 64 * MIB, "%zu MiB given out under a limit of %zu MiB", total / MIB, limit / MIB);
    }
    CHECK(errno == ENOMEM, "errno after refusal of %zu", size);
    /* At the edge: nothing aborts, every form says no or yes. */
    errno = 0;
    void *p = calloc(1, size);
    CHECK(p != NULL || errno == ENOMEM, "calloc");
    free(p);
    p = NULL;
    int status = posix_memalign(&p, 4096, size);
    CHECK(status == 0 || status == ENOMEM, "posix_memalign = %d", status);
    if (status == 0) free(p);
    if (list) {
        struct link *next = list->next;
        errno = 0;
        struct link *grown = realloc(list, size * 64);
        if (grown == NULL) CHECK(errno == ENOMEM && list->next == next, "refused realloc");
        else list = grown;
    }
    while (list) {
        struct link *next = list->next;
        free(list);
        list = next;
    }
    malloc_trim(0);
    return total;
}

static void *in_thread(void *argument) {
    (void)argument;
    for (int i = 0; i < 300; i++) {
        unsigned char *p = malloc(8 * MIB);
        if (p) p[0] = 1;
        else CHECK(errno == ENOMEM, "errno");
        unsigned char *q = realloc(p, 16 * MIB);
        if (q == NULL) CHECK(errno == ENOMEM, "errno");
        free(q ? q : p);
    }
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc >= 3, "arguments");
    int resource = strcmp(argv[1], "as") == 0 ? RLIMIT_AS : RLIMIT_DATA;
    size_t limit = strtoull(argv[2], NULL, 10);
    if (argc == 3) {
        struct rlimit both = {limit, limit};
        CHECK(setrlimit(resource, &both) == 0, "setrlimit");
        execl("/proc/self/exe", argv[0], argv[1], argv[2], "limited", NULL);
        CHECK(0, "exec");
    }
    basics();
    if (limit <= 4 * GIB) {
        const size_t sizes[] = {16 * MIB, 300 * KIB, 40 * KIB, 64 * MIB};
        char *start = sbrk(0);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            size_t total = exhaust(sizes[i], limit);
            /* What one size has left behind need not all serve the next one, but some of it must. */
            size_t least = i == 0 ? limit / 4 : 4 * MIB;
            /* Where glibc served one, it keeps all that lies below a small object that a thread of its has freed. */
            if ((char *)sbrk(0) - start > (ptrdiff_t)(limit / 2)) least = 0;
            CHECK(total >= least, "only %zu MiB in objects of %zu under a limit of %zu MiB", total / MIB, sizes[i], limit / MIB);
            basics();
        }
    } else {
        /* Enough room: a gigabyte must be there, and the impossible refused. */
        unsigned char *p = malloc(GIB);
        CHECK(p != NULL, "1 GiB under a limit of %zu GiB", limit / GIB);
        p[GIB - 1] = 1;
        p = realloc(p, GIB + GIB / 2);
        CHECK(p != NULL && p[GIB - 1] == 1, "1.5 GiB under a limit of %zu GiB", limit / GIB);
        free(p);
    }
    errno = 0;
    CHECK(malloc(opaque(limit + GIB)) == NULL && errno == ENOMEM, "more than the limit");
    pthread_t threads[4];
    int started = 0;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 * KIB);
    for (; started < 4; started++)
        if (pthread_create(&threads[started], &attributes, in_thread, NULL) != 0) break;
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    basics();
    return 0;
}
