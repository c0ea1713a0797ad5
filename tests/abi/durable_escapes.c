/* A command stores an address of the process's own memory in the state. Prints the address, or "none" if nothing is to be said of it.
 *   durable_escapes DIRECTORY named|translated|verified|pages WHAT */
#include "durable.h"

#include <pthread.h>
#include <sys/personality.h>

struct words {
    void *words[8];
};

static struct words *kept;
static void *given;
static int is_in_init;
int durable_escapes_variable = 7;

static void put(spandrel_durable *state, struct words *to, void *address) {
    to->words[3] = address;
    CHECK(spandrel_durable_wrote(state, &to->words[3], sizeof to->words[3]) == 0);
}

static int init(spandrel_durable *state, void *argument) {
    (void)argument;
    kept = spandrel_durable_root(state, "kept");
    if (kept) return 0;
    kept = spandrel_durable_calloc(state, 1, sizeof *kept);
    CHECK(kept && spandrel_durable_set_root(state, "kept", kept) == 0);
    if (is_in_init) put(state, kept, given);
    return 0;
}

static int store(spandrel_durable *state, void *argument) {
    put(state, kept, argument);
    return 0;
}

/* What is free when the command returns is no part of the state. */
static int store_and_free(spandrel_durable *state, void *argument) {
    struct words *words = spandrel_durable_calloc(state, 1, sizeof *words);
    CHECK(words);
    put(state, words, argument);
    CHECK(spandrel_durable_free(state, words) == 0);
    return store(state, kept);
}

/* What a function leaves behind that has returned. */
static int store_frame(spandrel_durable *state, void *argument) {
    volatile int local = 0;
    given = (void *)((uintptr_t)&local + (uintptr_t)argument);
    put(state, kept, given);
    return 0;
}

/* A reader that changes what it reads: found when the state is closed. */
static int store_natively(spandrel_durable *state, void *argument) {
    (void)state;
    kept->words[3] = argument;
    return 0;
}

static int refuse(spandrel_durable *state, void *argument) {
    put(state, kept, argument);
    return -1;
}

/* Its allocator has memory of its own for each thread. */
static void *allocate(void *argument) {
    (void)argument;
    return malloc(300);
}

/* Whether the kernel draws the addresses of this process. */
static int draws(void) {
    FILE *file = fopen("/proc/sys/kernel/randomize_va_space", "r");
    int does = !file || fgetc(file) != '0';
    if (file) fclose(file);
    return does && !(personality(0xffffffff) & ADDR_NO_RANDOMIZE);
}

static spandrel_durable *opened(const char *directory, const char *mode) {
    spandrel_durable_options options = durable_options();
    const char *const modes[] = {"named", "translated", "verified", "pages"};
    options.stores = -1;
    for (int number = 0; number < 4; number++)
        if (strcmp(mode, modes[number]) == 0) options.stores = number;
    spandrel_durable *db = spandrel_durable_open(directory, &options, init, NULL);
    CHECK(db);
    return db;
}

int main(int count, char **arguments) {
    CHECK(count == 4);
    const char *mode = arguments[2], *what = arguments[3];
    if (mode[0] == 't' || mode[0] == 'v') CHECK(spandrel_durable_fix_addresses() == 0);
    int of_stack = 0, is_drawn = draws(), is_said = 1;
    spandrel_durable_command command = store;
    given = malloc(100);
    CHECK(given);
    if (strcmp(what, "large") == 0) {
        given = (char *)malloc(1 << 20) + 5000;
    } else if (strcmp(what, "thread") == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, allocate, NULL) == 0 && pthread_join(thread, &given) == 0);
    } else if (strcmp(what, "stack") == 0) {
        given = &of_stack;
    } else if (strcmp(what, "function") == 0) {
        given = (void *)(uintptr_t)qsort;
        is_said = is_drawn;
    } else if (strcmp(what, "variable") == 0) {
        given = &durable_escapes_variable;
        is_said = is_drawn;
    } else if (strcmp(what, "init") == 0) {
        is_in_init = 1;
    } else if (strcmp(what, "number") == 0) {
        given = (void *)(uintptr_t)0x3456789abcde;
        is_said = 0;
    } else if (strcmp(what, "freed") == 0) {
        command = store_and_free;
        is_said = 0;
    } else if (strcmp(what, "frame") == 0) {
        command = store_frame;
        given = NULL;
        /* Ordinary code leaves such words in its objects. Others are named by the program. */
        is_said = mode[0] == 'n';
    } else if (strcmp(what, "closed") == 0) {
        command = store_natively;
    } else if (strcmp(what, "undone") == 0) {
        command = refuse;
        is_said = 0;
    } else {
        CHECK(strcmp(what, "heap") == 0);
    }
    spandrel_durable *db = opened(arguments[1], mode);
    if (command == store_natively)
        CHECK(spandrel_durable_read(db, command, given) == 0);
    else if (is_in_init)
        CHECK(kept->words[3] == given);
    else
        CHECK((spandrel_durable_write(db, command, given) == 0) == (command != refuse));
    if (is_said)
        printf("0x%lx\n", (unsigned long)(uintptr_t)given);
    else
        puts("none");
    CHECK(spandrel_durable_close(db) == 0);
    return 0;
}
