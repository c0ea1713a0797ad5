/* Several states with translated commands are open at once.
 *   durable_many DIRECTORY NUMBER   their directories are DIRECTORY.0, DIRECTORY.1 ... */
#include "durable.h"

static int init(spandrel_durable *state, void *argument) {
    (void)argument;
    return spandrel_durable_set_root(state, "number", spandrel_durable_calloc(state, 1, sizeof(int)));
}

static int count(spandrel_durable *state, void *argument) {
    (void)argument;
    return ++*(int *)spandrel_durable_root(state, "number");
}

int main(int arguments, char **argument) {
    enum { MOST = 64 };
    spandrel_durable *states[MOST];
    CHECK(arguments == 3 && spandrel_durable_fix_addresses() == 0);
    int number = atoi(argument[2]);
    spandrel_durable_options options = {.struct_size = sizeof options, .stores = SPANDREL_DURABLE_STORES_TRANSLATED};
    CHECK(number <= MOST);
    for (int i = 0; i < number; i++) {
        char directory[4096];
        snprintf(directory, sizeof directory, "%s.%d", argument[1], i);
        states[i] = spandrel_durable_open(directory, &options, init, NULL);
        CHECK(states[i]);
    }
    for (int i = 0; i < number; i++) CHECK(spandrel_durable_write(states[i], count, NULL) == 1);
    for (int i = 0; i < number; i++) CHECK(spandrel_durable_close(states[i]) == 0);
}
