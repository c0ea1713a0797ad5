/* A durable variable gets the address of what the process has allocated, or of what the command has. Prints the address.
 *   SPANDREL_DURABLE_DIR=DIRECTORY durable_escapes_variable outside|inside */
#include <stdio.h>

#include "mangosteen.h"

SPANDREL_DURABLE static char *kept;
static const char *what;

static bool is_read_only(void *client) {
    (void)client;
    return false;
}

static void process(void *client) {
    kept = strcmp(what, "outside") == 0 ? client : malloc(100);
}

int main(int count, char **arguments) {
    what = count == 2 ? arguments[1] : "";
    if (initMangosteen(NULL, NULL, is_read_only, process, NULL, NULL, MODE_LOCAL) != 0) {
        fprintf(stderr, "%s\n", spandrel_durable_error_text());
        return 1;
    }
    char *client = malloc(100);
    if (!client || ClientCmd(client) != 0) return 1;
    printf("0x%lx\n", (unsigned long)(uintptr_t)kept);
    return 0;
}
