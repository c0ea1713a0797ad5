/* What a program does before its state is started: it forks, ends, opens another state, or has threads that store to it.
 *   durable_early fork|exit|open|threads|count      SPANDREL_DURABLE_DIR is set */
#include <mangosteen.h>

#include "durable.h"

#include <pthread.h>
#include <sys/wait.h>

SPANDREL_DURABLE static char *text;

enum { LOOKS = 1, STORES };

static bool reads(void *client) {
    return *(int *)client == LOOKS;
}

static void process(void *client) {
    if (*(int *)client == LOOKS)
        CHECK(strcmp(text, "made before init") == 0);
    else
        text[50]++;
}

/* Not the thread that runs main: what it stores is not captured. */
static void *stores(void *argument) {
    text[60] = 1;
    return argument;
}

/* What is refused once the state is started. */
static void refused(void) {
    int store = STORES;
    FAILS(EINVAL, spandrel_durable_close(spandrel_durable_default()) == -1);
    CHECK(strstr(spandrel_durable_error_text(), "until the process ends"));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        FAILS(EPERM, ClientCmd(&store) == -1);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(ClientCmd(&store) == 0);
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
    if (strcmp(arguments[1], "open") == 0) {
        char path[4096];
        snprintf(path, sizeof path, "%s.other", getenv("SPANDREL_DURABLE_DIR"));
        FAILS(EDEADLK, !spandrel_durable_open(path, NULL, NULL, NULL));
        CHECK(strstr(spandrel_durable_error_text(), "spandrel_durable_start"));
    }
    int look = LOOKS;
    if (strcmp(arguments[1], "threads") == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, stores, NULL) == 0 && pthread_join(thread, NULL) == 0);
        FAILS(EUCLEAN, start() == -1);
        return 0;
    }
    CHECK(start() == 0);
    CHECK(ClientCmd(&look) == 0);
    refused();
    return 0;
}
