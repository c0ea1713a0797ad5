/* What a program does before its state is started: it forks, or ends.
 *   durable_early fork|exit|count      SPANDREL_DURABLE_DIR is set */
#include <mangosteen.h>

#include "durable.h"

#include <sys/wait.h>

SPANDREL_DURABLE static char *text;

static bool reads(void *client) {
    (void)client;
    return true;
}

static void process(void *client) {
    if (client) CHECK(strcmp(text, "made before init") == 0);
}

static int start(void) {
    return initMangosteen(NULL, NULL, reads, process, NULL, NULL, MODE_LOCAL);
}

static void clean_up(void) {
    free(text);
    text = strdup("after the values of the thread");
    CHECK(text);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    if (!text) {
        text = malloc(100);
        CHECK(text);
        strcpy(text, "made before init");
    }
    if (strcmp(arguments[1], "exit") == 0) {
        atexit(clean_up);
        exit(2);
    }
    if (strcmp(arguments[1], "fork") == 0) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            /* The state is the parent's; the child's memory is its own. */
            char *own = malloc(10);
            CHECK(own && strcpy(own, "own") == own);
            free(own);
            FAILS(EPERM, start() == -1);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    CHECK(start() == 0);
    int looks = 1;
    CHECK(ClientCmd(&looks) == 0);
    return 0;
}
