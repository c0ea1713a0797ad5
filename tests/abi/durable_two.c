/* Two states in one process, which threads change and read at once; compiled with hooks.
 *   durable_two DIRECTORY fill|verify|copies */
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

static int has_begun(spandrel_durable *state, void *argument) {
    (void)state;
    return (*(struct words **)argument)->count > 0;
}

/* A copy while threads change the state, which has whole commands; and copies that are refused. */
static void copy(const char *directory) {
    char path[4096];
    snprintf(path, sizeof path, "%s.copy", directory);
    CHECK(spandrel_durable_copy(states[0], path) == 0);
    CHECK(spandrel_durable_copy(states[0], path) == -1 && errno == EEXIST);
    CHECK(strstr(spandrel_durable_error_text(), ".copy: the directory has a state"));
    CHECK(spandrel_durable_copy(states[0], NULL) == -1 && errno == EINVAL);
    CHECK(spandrel_durable_copy(NULL, path) == -1 && errno == EINVAL);
}

static int copy_within(spandrel_durable *state, void *argument) {
    return spandrel_durable_copy(state, argument) == -1 && errno == EDEADLK ? 0 : -1;
}

/* The copy that another run has made: it lies where the first state does. */
static void look_at_copy(const char *directory) {
    char path[4096];
    struct words *words;
    snprintf(path, sizeof path, "%s.copy", directory);
    spandrel_durable *state = spandrel_durable_open(path, NULL, init, &words);
    CHECK(state);
    CHECK(spandrel_durable_read(state, look, &words) == 0);
    CHECK(words->count > 0 && words->count <= TURNS * THREADS / STATES);
    CHECK(spandrel_durable_read(state, copy_within, path) == 0);
    CHECK(spandrel_durable_close(state) == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    if (strcmp(arguments[2], "copies") == 0) {
        look_at_copy(arguments[1]);
        return 0;
    }
    for (int i = 0; i < STATES; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s.%d", arguments[1], i);
        states[i] = spandrel_durable_open(path, NULL, init, &of[i]);
        CHECK(states[i]);
    }
    if (strcmp(arguments[2], "fill") == 0) {
        pthread_t threads[THREADS];
        for (intptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, run, (void *)i) == 0);
        while (spandrel_durable_read(states[0], has_begun, &of[0]) == 0) continue;
        copy(arguments[1]);
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
