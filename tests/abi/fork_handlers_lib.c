/* A library whose constructor registers fork handlers that allocate. It is a dependency of the program, so its
 * constructor may run before the preloaded library's. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static int ran;
static __thread char *kept;

static void prepare(void) {
    char *p = malloc(3000);
    memset(p, 1, 3000);
    kept = realloc(p, 300000);
    free(malloc(100));
}
static void parent(void) {
    free(kept);
    free(malloc(200000));
    __atomic_add_fetch(&ran, 1, __ATOMIC_RELAXED);
}
static void child(void) {
    free(kept);
    free(calloc(1, 200000));
}

__attribute__((constructor)) static void load(void) { pthread_atfork(prepare, parent, child); }

int library_handlers_ran(void);
int library_handlers_ran(void) { return ran; }
