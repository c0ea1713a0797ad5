/* A plug-in that is opened with RTLD_DEEPBIND: its names are searched for in its own dependencies before the
 * program's, the C library among them. */
#include <pthread.h>
#include <sys/wait.h>

#include "abi.h"

static int prepared;

static void prepare(void) {
    prepared++;
    free(malloc(100));
}

/* The program defines the same. */
int which(void) { return 2; }

int which_is_bound(void) { return which(); }

char *copy_of(const char *text) { return strdup(text); }

char *line_of(FILE *stream) {
    char *line = NULL;
    size_t room = 0;
    return getline(&line, &room, stream) < 0 ? NULL : line;
}

void drop(void *object) { free(object); }

void *grown(void *object, size_t size) { return realloc(object, size); }

void *array_of(void *object, size_t count, size_t size) { return reallocarray(object, count, size); }

void *zeroed(size_t size) { return calloc(1, size); }

void *aligned(size_t align, size_t size) {
    void *object = NULL;
    CHECK(posix_memalign(&object, align, size) == 0, "posix_memalign");
    return object;
}

size_t usable(void *object) { return malloc_usable_size(object); }

/* Handlers of fork, and a child of vfork, which runs on the parent's memory. */
int children(void) {
    CHECK(pthread_atfork(prepare, NULL, NULL) == 0, "pthread_atfork");
    int status = -1;
    pid_t child = fork();
    if (child == 0) _exit(3);
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3, "fork");
    child = vfork();
    if (child == 0) {
        free(malloc(200));
        _exit(4);
    }
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 4, "vfork");
    return prepared;
}
