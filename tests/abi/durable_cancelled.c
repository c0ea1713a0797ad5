/* Threads are cancelled while a command of theirs runs, or while they wait for one.
 *   durable_cancelled DIRECTORY STORES deferred|at-once   prints the number of commands that were made durable */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "durable.h"

static int *number;
static spandrel_durable *state;
static atomic_int begun, looked;

static int init(spandrel_durable *of, void *argument) {
    (void)argument;
    number = spandrel_durable_root(of, "number");
    if (number) return 0;
    number = spandrel_durable_calloc(of, 1, sizeof *number);
    return spandrel_durable_set_root(of, "number", number);
}

static int count(spandrel_durable *of, void *is_slow) {
    ++*number;
    spandrel_durable_wrote(of, number, sizeof *number);
    if (is_slow) {
        atomic_store(&begun, 1);
        for (int i = 0; i < 50; i++) usleep(1000);
    }
    return *number;
}

static void *work(void *type) {
    CHECK(pthread_setcanceltype(*(int *)type, NULL) == 0);
    spandrel_durable_write(state, count, type);
    pthread_testcancel();
    return NULL;
}

static void *look(void *type) {
    CHECK(pthread_setcanceltype(*(int *)type, NULL) == 0);
    spandrel_durable_figures figures = {.struct_size = sizeof figures};
    for (;;) {
        spandrel_durable_get_figures(state, &figures);
        atomic_store(&looked, 1);
        pthread_testcancel();
    }
    return NULL;
}

int main(int arguments, char **argument) {
    CHECK(arguments == 4 && spandrel_durable_fix_addresses() == 0);
    spandrel_durable_options options = {.struct_size = sizeof options, .stores = (unsigned)atoi(argument[2])};
    int type = strcmp(argument[3], "deferred") == 0 ? PTHREAD_CANCEL_DEFERRED : PTHREAD_CANCEL_ASYNCHRONOUS;
    state = spandrel_durable_open(argument[1], &options, init, NULL);
    CHECK(state);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, work, &type) == 0);
    while (!atomic_load(&begun)) usleep(100);
    for (int i = 0; i < 2; i++) CHECK(pthread_cancel(threads[i]) == 0);
    for (int i = 0; i < 2; i++) {
        void *result;
        CHECK(pthread_join(threads[i], &result) == 0);
        /* The C library of Debian 12 (2.36) forgets one at once that came while it was held. */
        CHECK(result == PTHREAD_CANCELED || type == PTHREAD_CANCEL_ASYNCHRONOUS);
    }
    /* And while they ask for figures. One that came while it was held may be forgotten: it is sent again. */
    for (int i = 0; i < 200; i++) {
        pthread_t looks;
        void *result;
        atomic_store(&looked, 0);
        CHECK(pthread_create(&looks, NULL, look, &type) == 0);
        while (!atomic_load(&looked)) sched_yield();
        do CHECK(pthread_cancel(looks) == 0);
        while (pthread_tryjoin_np(looks, &result) != 0);
        CHECK(result == PTHREAD_CANCELED || type == PTHREAD_CANCEL_ASYNCHRONOUS);
    }
    CHECK(spandrel_durable_write(state, count, NULL) > 0);
    printf("%d\n", *number);
    return spandrel_durable_close(state) != 0;
}
