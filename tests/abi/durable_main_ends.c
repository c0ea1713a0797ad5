/* The thread that runs main ends, and another opens a state and goes on.
 *   durable_main_ends DIRECTORY */
#include <pthread.h>

#include "durable.h"

static const char *directory;

static int init(spandrel_durable *state, void *argument) {
    (void)argument;
    if (spandrel_durable_root(state, "bytes")) return 0;
    void *bytes = spandrel_durable_calloc(state, 1, 100 << 20);
    return bytes ? spandrel_durable_set_root(state, "bytes", bytes) : -1;
}

/* More than the log holds, which becomes longer. */
static int fill(spandrel_durable *state, void *argument) {
    (void)argument;
    return spandrel_durable_memset(state, spandrel_durable_root(state, "bytes"), 1, 80 << 20);
}

static void *work(void *main_thread) {
    CHECK(pthread_join(*(pthread_t *)main_thread, NULL) == 0);
    spandrel_durable *state = spandrel_durable_open(directory, NULL, init, NULL);
    CHECK(state);
    CHECK(spandrel_durable_write(state, fill, NULL) == 0);
    CHECK(spandrel_durable_close(state) == 0);
    exit(0);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    static pthread_t self;
    pthread_t other;
    directory = arguments[1];
    self = pthread_self();
    CHECK(pthread_create(&other, NULL, work, &self) == 0);
    pthread_exit(NULL);
}
