/* Two states in one process, which threads change and read at once; compiled with hooks.
 *   durable_two DIRECTORY fill|verify */
#include "durable.h"

#include <pthread.h>

enum { STATES = 2, THREADS = 4, TURNS = 400, WORDS = 300 };

struct words {
    uint64_t count, words[WORDS];
};

static spandrel_durable *states[STATES];
static struct words *of[STATES];

static int init(spandrel_durable *state, void *argument) {
    struct words **words = argument;
    *words = spandrel_durable_root(state, "words");
    if (*words) return 0;
    *words = spandrel_durable_calloc(state, 1, sizeof **words);
    return *words ? spandrel_durable_set_root(state, "words", *words) : -1;
}

static int add(spandrel_durable *state, void *argument) {
    struct words *words = *(struct words **)argument;
    CHECK(spandrel_durable_root(state, "words") == words);
    words->count++;
    for (int i = 0; i < WORDS; i++) words->words[i] += (uint64_t)i;
    return 0;
}

static int look(spandrel_durable *state, void *argument) {
    const struct words *words = *(struct words **)argument;
    (void)state;
    for (int i = 0; i < WORDS; i++) CHECK(words->words[i] == words->count * (uint64_t)i);
    return 0;
}

static void *run(void *argument) {
    for (int turn = 0; turn < TURNS; turn++) {
        int i = (int)((turn + (intptr_t)argument) % STATES);
        CHECK(spandrel_durable_write(states[i], add, &of[i]) == 0);
        CHECK(spandrel_durable_read(states[!i], look, &of[!i]) == 0);
    }
    return NULL;
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    for (int i = 0; i < STATES; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s.%d", arguments[1], i);
        states[i] = spandrel_durable_open(path, NULL, init, &of[i]);
        CHECK(states[i]);
    }
    if (strcmp(arguments[2], "fill") == 0) {
        pthread_t threads[THREADS];
        for (intptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, run, (void *)i) == 0);
        for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
        die();
    }
    for (int i = 0; i < STATES; i++) {
        CHECK(spandrel_durable_read(states[i], look, &of[i]) == 0);
        CHECK(of[i]->count == TURNS * THREADS / STATES);
        CHECK(spandrel_durable_close(states[i]) == 0);
    }
    return 0;
}
