/* A translated command that frees what is no object.
 *   durable_wrong_frees DIRECTORY HOW   HOW: twice, middle, realloc, moved; or nothing, which prints the number of commands that were made durable */
#include <spandrel_durable.h>

#include <stdlib.h>
#include <string.h>

#include "durable.h"

static int *number;

static int init(spandrel_durable *state, void *argument) {
    (void)argument;
    number = spandrel_durable_root(state, "number");
    if (number) return 0;
    number = calloc(1, sizeof *number);
    return spandrel_durable_set_root(state, "number", number);
}

static int count(spandrel_durable *state, void *how) {
    (void)state;
    /* The compiler would refuse what it sees. */
    char *volatile object = malloc(40);
    volatile size_t middle = 16;
    ++*number;
    if (strcmp(how, "twice") == 0) {
        free(object);
        free(object);
    } else if (strcmp(how, "middle") == 0) {
        free(object + middle);
    } else if (strcmp(how, "realloc") == 0) {
        object = realloc(object + middle, 100);
    } else if (strcmp(how, "moved") == 0) {
        free(object);
        object = realloc(object, 1000);
    }
    return *number;
}

int main(int arguments, char **argument) {
    CHECK(spandrel_durable_fix_addresses() == 0);
    spandrel_durable_options options = {.struct_size = sizeof options, .stores = SPANDREL_DURABLE_STORES_TRANSLATED};
    spandrel_durable *state = spandrel_durable_open(argument[1], &options, init, NULL);
    CHECK(state);
    int counted = spandrel_durable_write(state, count, arguments > 2 ? argument[2] : "");
    printf("%d\n", counted);
    return spandrel_durable_close(state) != 0;
}
