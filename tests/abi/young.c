/* A process in the default mode is young at first: its objects are the C library's. By the argument: what ends
 * that, and that nothing is lost by it. */
#include <pthread.h>
#include <sys/wait.h>

#include "abi.h"
#include "../../include/spandrel.h"

#pragma weak spandrel_owner
#pragma weak spandrel_set_mode
#pragma weak spandrel_scope_enter
#pragma weak spandrel_scope_leave
#pragma weak spandrel_count_requests
#pragma weak spandrel_stats

enum { OBJECTS = 2000, BYTES = 500 };
static unsigned char *objects[OBJECTS];

static void *get(size_t size) {
    void *object = malloc(size);
    CHECK(object, "malloc of %zu", size);
    return object;
}

/* Whether the next object of `size` bytes is the C library's. */
static int is_young(size_t size) {
    void *object = get(size);
    int owner = spandrel_owner(object);
    free(object);
    CHECK(owner == SPANDREL_SYS || owner == SPANDREL_NATIVE || owner == SPANDREL_MMAP, "owner %d", owner);
    return owner == SPANDREL_SYS;
}

static void by_bytes(void) {
    size_t large = 150 * KIB;
    unsigned char *grown = get(large);
    CHECK(spandrel_owner(grown) == SPANDREL_SYS, "the first object");
    fill_from(grown, 0, large, 7);
    int young = 0;
    for (int i = 0; i < OBJECTS; i++) {
        objects[i] = get(BYTES);
        fill_from(objects[i], 0, BYTES, (uint64_t)i);
        young += spandrel_owner(objects[i]) == SPANDREL_SYS;
        CHECK(young == i + 1 || spandrel_owner(objects[i]) == SPANDREL_NATIVE, "object %d", i);
    }
    /* 256 KiB in all. */
    CHECK(young > 150 && young < 250, "%d of %d", young, OBJECTS);
    grown = realloc(grown, 20 * large);
    CHECK(grown && spandrel_owner(grown) == SPANDREL_MMAP, "a large one that grows");
    CHECK(first_difference(grown, 0, large, 7) == large, "contents of the large one");
    free(grown);
    for (int i = 0; i < OBJECTS; i += 3) {
        objects[i] = realloc(objects[i], 40 * BYTES);
        CHECK(objects[i] && spandrel_owner(objects[i]) != SPANDREL_SYS, "object %d grows", i);
    }
    for (int i = 0; i < OBJECTS; i++) {
        CHECK(first_difference(objects[i], 0, BYTES, (uint64_t)i) == BYTES, "contents of %d", i);
        free(objects[i]);
    }
    CHECK(!is_young(16), "it stays grown up");
}

/* What was asked for counts, whatever was given back of it. */
static void by_requests(void) {
    int n = 0;
    while (n < OBJECTS && is_young(KIB)) n++;
    CHECK(n > 200 && n < 300, "%d requests", n);
}

static void *in_thread(void *unused) {
    (void)unused;
    CHECK(!is_young(16), "in a second thread");
    return NULL;
}

static void by_thread(void) {
    CHECK(is_young(16), "one thread");
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, in_thread, NULL) == 0, "thread");
    CHECK(pthread_join(thread, NULL) == 0, "join");
}

static void by_mode(void) {
    CHECK(is_young(16), "at first");
    CHECK(spandrel_set_mode("native") == 0 && !is_young(16), "native");
    CHECK(spandrel_set_mode("auto") == 0 && !is_young(16), "auto, asked for");
}

static void by_scope(void) {
    CHECK(is_young(16), "at first");
    CHECK(spandrel_scope_enter("native") == 0 && !is_young(16), "native");
    spandrel_scope_leave();
    CHECK(!is_young(16), "after the scope");
}

static void by_counting(void) {
    CHECK(is_young(16), "at first");
    spandrel_count_requests(1);
    free(get(16));
    struct spandrel_stats stats;
    CHECK(spandrel_stats(&stats, sizeof stats) == 0 && stats.allocations[SPANDREL_NATIVE] == 1, "counted");
}

static int started;

static void *grow_up(void *unused) {
    (void)unused;
    __atomic_store_n(&started, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < OBJECTS; i++) free(get(BYTES));
    return NULL;
}

/* A child of a process whose other thread is just ending its youth. */
static void by_fork(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, grow_up, NULL) == 0, "thread");
    while (!__atomic_load_n(&started, __ATOMIC_ACQUIRE)) {}
    for (int n = 0; n < 3; n++) {
        pid_t child = fork();
        CHECK(child >= 0, "fork");
        if (child == 0) {
            CHECK(!is_young(16), "in the child");
            for (int i = 0; i < OBJECTS; i++) objects[i] = get(BYTES);
            for (int i = 0; i < OBJECTS; i++) free(objects[i]);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "child %d ended with %#x", n, status);
    }
    CHECK(pthread_join(thread, NULL) == 0, "join");
}

/* A child that ends the youth of both. */
static void by_vfork(void) {
    CHECK(is_young(16), "at first");
    pid_t child = vfork();
    CHECK(child >= 0, "vfork");
    if (child == 0) {
        for (int i = 0; i < OBJECTS; i++) {
            objects[i] = malloc(BYTES);
            if (!objects[i]) _exit(1);
            *objects[i] = 1;
        }
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the child ended with %#x", status);
    CHECK(!is_young(16), "afterwards");
    for (int i = 0; i < OBJECTS; i++) {
        CHECK(*objects[i] == 1, "object %d", i);
        free(objects[i]);
    }
    free(realloc(get(BYTES), 3 * MIB));
}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        void (*run)(void);
    } ways[] = {
        {"bytes", by_bytes}, {"requests", by_requests}, {"thread", by_thread}, {"mode", by_mode},
        {"scope", by_scope}, {"counting", by_counting}, {"fork", by_fork},     {"vfork", by_vfork},
    };
    for (size_t i = 0; count == 2 && i < sizeof ways / sizeof *ways; i++) {
        if (strcmp(arguments[1], ways[i].name) == 0) {
            ways[i].run();
            return 0;
        }
    }
    CHECK(0, "young bytes|requests|thread|mode|scope|counting|fork|vfork");
}
