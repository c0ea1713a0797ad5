// What a library keeps of a command: durable_keeper DIRECTORY undone|thread|outside|taken|stdio|text
#include "durable.h"

int keeper_use(int is_of_thread);
void keeper_take(char *object);

static char *kept;

static int init(spandrel_durable *db, void *argument) {
    (void)argument;
    kept = spandrel_durable_root(db, "kept");
    if (kept) return 0;
    kept = calloc(1, 4096);
    return spandrel_durable_set_root(db, "kept", kept);
}

static int use(spandrel_durable *db, void *argument) {
    (void)db;
    CHECK(keeper_use(argument != NULL) == 'k');
    return -1;
}

static int prepare(void *argument) {
    (void)argument;
    return keeper_use(0);
}

static int use_outside(spandrel_durable *db, void *argument) {
    CHECK(spandrel_durable_outside(prepare, NULL) == 'k');
    return use(db, argument);
}

// An object that an undone command has not made is there afterwards.
static int take(spandrel_durable *db, void *argument) {
    (void)db;
    (void)argument;
    keeper_take(kept);
    return -1;
}

// The C library's variable of the standard output leads to what the program has given to it.
static int print(spandrel_durable *db, void *argument) {
    (void)db;
    (void)argument;
    return setvbuf(stdout, malloc(4096), _IOFBF, 4096);
}

// The C library remembers a place within the text.
static int split(spandrel_durable *db, void *argument) {
    (void)db;
    strcpy(kept, "one two");
    CHECK(strcmp(strtok(kept, " "), "one") == 0);
    return argument ? -1 : 0;
}

int main(int count, char **arguments) {
    CHECK(count == 3 && spandrel_durable_fix_addresses() == 0);
    const char *what = arguments[2];
    spandrel_durable_options options = durable_options();
    options.stores = SPANDREL_DURABLE_STORES_TRANSLATED;
    spandrel_durable *db = spandrel_durable_open(arguments[1], &options, init, NULL);
    CHECK(db);
    if (strcmp(what, "undone") == 0) {
        FAILS(ECANCELED, spandrel_durable_write(db, use, NULL) < 0);
        // Each variable is said once.
        keeper_take(NULL);
        FAILS(ECANCELED, spandrel_durable_write(db, use, NULL) < 0);
    } else if (strcmp(what, "thread") == 0) {
        FAILS(ECANCELED, spandrel_durable_write(db, use, "of the thread") < 0);
    } else if (strcmp(what, "outside") == 0) {
        FAILS(ECANCELED, spandrel_durable_write(db, use_outside, NULL) < 0);
    } else if (strcmp(what, "taken") == 0) {
        FAILS(ECANCELED, spandrel_durable_write(db, take, NULL) < 0);
    } else if (strcmp(what, "stdio") == 0) {
        CHECK(spandrel_durable_write(db, print, NULL) == 0);
    } else {
        CHECK(spandrel_durable_write(db, split, NULL) == 0);
        FAILS(ECANCELED, spandrel_durable_write(db, split, db) < 0);
    }
    // The buffer of the standard output is not used again.
    fflush(stderr);
    _exit(0);
}
