/* Mistakes with objects of which some, by chance, lie between guard pages. The argument says which mistake:
 *   none   overflow   underflow   behind   read-after-free   write-after-free   twice   inside
 *   calloc-overflow   aligned-overflow   aligned-behind: with objects that come from there
 * A mistake ends the program; that it does not is the failure. */
#include "abi.h"

#include <pthread.h>
#include <sys/wait.h>

#define OBJECTS 256
#define SIZE 64

static volatile char *objects[OBJECTS];

static void *by_malloc(size_t size) { return malloc(size); }
static void *by_calloc(size_t size) { return calloc(1, size); }
static void *by_alignment(size_t size) { return aligned_alloc(64, size); }
static void *(*get)(size_t) = by_malloc;

__attribute__((noinline)) void make(size_t size) {
    for (int i = 0; i < OBJECTS; i++) {
        objects[i] = get(size);
        CHECK(objects[i] != NULL, "malloc");
        CHECK((uintptr_t)objects[i] % (get == by_alignment ? 64 : 16) == 0, "alignment");
        memset((char *)objects[i], i, size);
    }
}

__attribute__((noinline)) void end(void) {
    for (int i = 0; i < OBJECTS; i++) {
        free((char *)objects[i]);
    }
}

static void *in_thread(void *unused) {
    for (int round = 0; round < 50; round++) {
        char *object[64];
        for (int i = 0; i < 64; i++) {
            size_t size = 1 + (size_t)(round * 64 + i) % 9000;
            size_t align = (size_t)32 << i % 9;
            object[i] = i % 3 == 0 ? calloc(1, size) : i % 3 == 1 ? malloc(size) : memalign(align, size);
            CHECK(object[i] != NULL && malloc_usable_size(object[i]) >= size, "malloc of %zu", size);
            CHECK(i % 3 != 2 || (uintptr_t)object[i] % align == 0, "%p is not aligned to %zu", object[i], align);
            for (size_t at = 0; i % 3 == 0 && at < size; at++) CHECK(object[i][at] == 0, "calloc of %zu", size);
            memset(object[i], i, size);
            object[i] = realloc(object[i], size * 2);
            CHECK(object[i] != NULL && object[i][size - 1] == i, "realloc");
            object[i] = realloc(object[i], 1 + size / 2);
            CHECK(object[i] != NULL && object[i][size / 2] == i, "realloc");
        }
        for (int i = 0; i < 64; i++) {
            free(object[i]);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 2, "usage: guarded WHAT");
    const char *what = argv[1];
    volatile char seen = 0;
    if (strcmp(what, "none") == 0) {
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) {
            CHECK(pthread_create(&threads[i], NULL, in_thread, NULL) == 0, "a thread");
        }
        for (int i = 0; i < 3; i++) {
            pthread_join(threads[i], NULL);
        }
        make(0);
        end();
        make(SIZE);
        for (int child = 0; child < 20; child++) {
            pid_t pid = fork();
            if (pid == 0) {
                end();
                in_thread(NULL);
                _exit(0);
            }
            int status = 1;
            CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the child");
        }
        end();
        return 0;
    }
    get = strncmp(what, "calloc-", 7) == 0 ? by_calloc : strncmp(what, "aligned-", 8) == 0 ? by_alignment : by_malloc;
    what += get == by_calloc ? 7 : get == by_alignment ? 8 : 0;
    make(strcmp(what, "behind") == 0 ? SIZE - 4 : SIZE);
    for (int i = 0; i < OBJECTS; i++) {
        if (strcmp(what, "overflow") == 0) {
            objects[i][SIZE] = 1;
        } else if (strcmp(what, "underflow") == 0) {
            seen = objects[i][-1];
        } else if (strcmp(what, "behind") == 0) {
            objects[i][SIZE - 3] = 1;
        }
    }
    if (strcmp(what, "inside") == 0) {
        free((char *)objects[7] + 16);
    }
    end();
    for (int i = 0; i < OBJECTS; i++) {
        if (strcmp(what, "read-after-free") == 0) {
            seen = objects[i][SIZE / 2];
        } else if (strcmp(what, "write-after-free") == 0) {
            objects[i][0] = 1;
        }
    }
    if (strcmp(what, "twice") == 0) {
        free((char *)objects[OBJECTS - 1]);
    }
    printf("not found: %s (%d)\n", what, seen);
    return 0;
}
