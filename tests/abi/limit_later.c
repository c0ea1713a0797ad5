/* A limit of the address space that comes while the program runs: "self", or "outside", by another process. What fits in
 * it is to be had, by requests and by mappings, threads and libraries of the program; what does not is refused; and the
 * objects from before are as good as ever. The second argument is the limit in MiB. With a third one the program rests before, so that free memory has gone back. */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "abi.h"

enum { SMALL = 5000, LARGE = 40 };

static char *small[SMALL], *large[LARGE];
static size_t limit;

static size_t large_size(int i) { return (size_t)(i + 1) * 50 * KIB; }

static void *in_thread(void *objects) {
    for (int i = 0; i < 1000; i++) {
        char *object = malloc(1000);
        CHECK(object, "malloc in a thread");
        object[0] = 1;
        ((char **)objects)[i] = object;
    }
    return NULL;
}

static void run_thread(void) {
    pthread_t thread;
    static void *objects[1000];
    int error = pthread_create(&thread, NULL, in_thread, objects);
    CHECK(error == 0, "pthread_create: %d", error);
    pthread_join(thread, NULL);
    for (int i = 0; i < 1000; i++) free(objects[i]);
}

static void set_limit(int outside) {
    struct rlimit both = {limit, RLIM_INFINITY};
    if (!outside) {
        CHECK(setrlimit(RLIMIT_AS, &both) == 0, "setrlimit");
        return;
    }
    pid_t child = fork();
    if (child == 0) _exit(prlimit(getppid(), RLIMIT_AS, &both, NULL) != 0);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "prlimit");
}

/* As many bytes in objects of one size as are to be had, all of them used. */
static size_t exhaust(size_t size) {
    struct link { struct link *next; } *list = NULL, *next;
    size_t total = 0;
    while ((next = malloc(size))) {
        next->next = list;
        list = next;
        ((char *)next)[size - 1] = 1;
        total += size;
        CHECK(total <= limit, "%zu MiB under the limit", total / MIB);
    }
    CHECK(errno == ENOMEM, "errno of a refusal");
    for (; list; list = next) {
        next = list->next;
        free(list);
    }
    return total;
}

/* Objects that share huge pages in a range of addresses made for them, and small ones that lie behind that. */
static void spread_out(void) {
    enum { MIDDLE = 160, BEHIND = 200000 };
    static char *middle[MIDDLE], *behind[BEHIND];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MIDDLE; i++) {
            middle[i] = malloc(1200000);
            CHECK(middle[i] != NULL, "malloc");
            memset(middle[i], 1, 1200000);
        }
        for (int i = 0; i < BEHIND; i++) {
            behind[i] = malloc(1000);
            CHECK(behind[i] != NULL, "malloc");
            memset(behind[i], 1, 1000);
        }
        for (int i = 0; i < MIDDLE; i++) free(middle[i]);
        for (int i = 0; i < BEHIND; i++) free(behind[i]);
    }
}

int main(int count, char **words) {
    CHECK(count == 3 || count == 4, "arguments");
    setvbuf(stdout, NULL, _IONBF, 0);
    int outside = strcmp(words[1], "outside") == 0;
    limit = strtoull(words[2], NULL, 10) * MIB;
    for (int i = 0; i < SMALL; i++) {
        small[i] = malloc((size_t)i % 2000 + 16);
        fill_from(small[i], 0, (size_t)i % 2000 + 16, (uint64_t)i);
    }
    for (int i = 0; i < LARGE; i++) {
        large[i] = malloc(large_size(i));
        fill_from(large[i], 0, large_size(i), (uint64_t)i);
    }
    spread_out();
    if (count == 4) sleep(6);
    run_thread();
    if (!outside) {
        /* A first one that is of concern, and that another follows. */
        limit *= 2;
        set_limit(0);
        run_thread();
        for (int i = 0; i < LARGE; i += 2) {
            free(large[i]);
            large[i] = malloc(large_size(i));
            CHECK(large[i], "malloc between two limits");
            fill_from(large[i], 0, large_size(i), (uint64_t)i);
        }
        limit /= 2;
    }
    set_limit(outside);

    if (outside) {
        /* The allocator comes to know of it by a look, at most once in a second. */
        for (int i = 0; i < 3; i++) {
            free(malloc(100 * MIB));
            usleep(600000);
        }
    }
    run_thread();
    void *mapping = mmap(NULL, limit / 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapping != MAP_FAILED, "a mapping of the program's");
    munmap(mapping, limit / 4);
    CHECK(dlopen("libm.so.6", RTLD_NOW), "%s", dlerror());
    char *object = malloc(limit / 3);
    CHECK(object, "malloc of a third of the limit");
    object[limit / 3 - 1] = 1;
    free(object);

    for (int i = 0; i < SMALL; i++) {
        CHECK_PATTERN(small[i], (size_t)i % 2000 + 16, (uint64_t)i);
        small[i] = realloc(small[i], (size_t)i % 2000 + 500);
        CHECK(small[i], "realloc");
        CHECK_PATTERN(small[i], (size_t)i % 2000 + 16, (uint64_t)i);
    }
    for (int i = 0; i < LARGE; i++) {
        CHECK_PATTERN(large[i], large_size(i), (uint64_t)i);
        large[i] = realloc(large[i], large_size(i) + 4 * MIB);
        CHECK(large[i], "realloc of object %d to %zu", i, large_size(i) + 4 * MIB);
        CHECK_PATTERN(large[i], large_size(i), (uint64_t)i);
    }
    for (int i = 0; i < LARGE; i++) {
        large[i] = realloc(large[i], large_size(i));
        CHECK(large[i], "realloc to less");
        CHECK_PATTERN(large[i], large_size(i), (uint64_t)i);
    }
    CHECK(malloc(opaque(limit)) == NULL && errno == ENOMEM, "more than the limit");
    const size_t sizes[] = {16 * MIB, 300 * KIB, 40 * KIB, 1000, 64 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t total = exhaust(sizes[i]);
        printf("%zu: %zu MiB\n", sizes[i], total / MIB);
        CHECK(i > 0 || total >= limit / 3, "%zu MiB of %zu in objects of %zu", total / MIB, limit / MIB, sizes[i]);
        malloc_trim(0);
        for (int i = 0; i < SMALL; i++) CHECK_PATTERN(small[i], (size_t)i % 2000 + 16, (uint64_t)i);
    }
    for (int i = 0; i < SMALL; i++) free(small[i]);
    for (int i = 0; i < LARGE; i++) free(large[i]);

    /* Without a limit again. */
    struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_AS, &none) == 0, "setrlimit");
    object = malloc(limit + GIB);
    CHECK(object, "more than the limit that was");
    object[limit] = 1;
    free(object);
    run_thread();
}
