/* A program whose calls that change files fail, compiled in three ways: it writes, has the log become longer, copies, closes, opens again and writes on, and goes on after errors, as programs
 * do. It says what it was told, a line for each command; the test judges that.
 *   durable_faults DIRECTORY lives|dies|left|looks COMMAND
 * lives: closes once. dies: is killed before it closes. left: a state whose log has records that it lacks. looks: says what is there, and adds that command. */
#include "durable_named.h"

#include <stdarg.h>
#include <stdbool.h>

enum { LOG_BYTES = 16 << 10, LONG = 1000, LONG_COMMAND = 2, FIRST_OF_SECOND_LIFE = 10, FIRST_LEFT = 100, MOST = 64 };

/* The entries of all commands, in order: a command has one, or many. */
struct entry {
    struct entry *next;
    uint64_t command, number, sum;
};

struct list {
    struct entry *first, *last;
    uint64_t commands, entries;
};

enum fate { UNKNOWN, DURABLE, ABSENT, MAYBE };

static spandrel_durable *db;
static enum fate fates[FIRST_LEFT];
static bool was_refused;

/* One system call: what was said before a kill is said. */
static void say(const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    CHECK(length > 0 && (size_t)length < sizeof line && write(1, line, (size_t)length) == length);
}

/* An error has a number and a reason, not a number alone. */
static int why(int error) {
    CHECK(error > 0 && strlen(spandrel_durable_error_text()) > 20);
    return error;
}

static uint64_t entries_of(uint64_t command) { return command == LONG_COMMAND ? LONG : 1; }

static struct list *list_of(spandrel_durable *state) {
    struct list *list = spandrel_durable_root(state, "list");
    CHECK(list);
    return list;
}

static int init(spandrel_durable *state, void *argument) {
    (void)argument;
    if (spandrel_durable_root(state, "list")) return 0;
    struct list *list = spandrel_durable_calloc(state, 1, sizeof *list);
    CHECK(list && spandrel_durable_set_root(state, "list", list) == 0);
    return 0;
}

static int add(spandrel_durable *state, void *argument) {
    uint64_t command = *(uint64_t *)argument;
    struct list *list = list_of(state);
    SET(list->commands, list->commands + 1);
    for (uint64_t number = 0; number < entries_of(command); number++) {
        struct entry *entry = spandrel_durable_malloc(state, sizeof *entry);
        CHECK(entry);
        SET(entry->next, NULL);
        SET(entry->command, command);
        SET(entry->number, number);
        SET(entry->sum, command * 7 ^ number);
        if (list->last)
            SET(list->last->next, entry);
        else
            SET(list->first, entry);
        SET(list->last, entry);
        SET(list->entries, list->entries + 1);
    }
    return 7;
}

struct found {
    uint64_t commands[MOST], count;
};

/* Each command is there as a whole, or not at all. */
static int look(spandrel_durable *state, void *argument) {
    const struct list *list = list_of(state);
    struct found *found = argument;
    const struct entry *entry = list->first, *last = NULL;
    uint64_t entries = 0;
    found->count = 0;
    while (entry) {
        uint64_t command = entry->command;
        for (uint64_t number = 0; number < entries_of(command); number++, entries++) {
            CHECK(entry && entry->command == command && entry->number == number && entry->sum == (command * 7 ^ number));
            last = entry;
            entry = entry->next;
        }
        CHECK(found->count < MOST);
        found->commands[found->count++] = command;
    }
    CHECK(found->count == list->commands && entries == list->entries && last == list->last);
    return 1;
}

static bool has(const struct found *found, uint64_t command) {
    for (uint64_t at = 0; at < found->count; at++)
        if (found->commands[at] == command) return true;
    return false;
}

/* Reads go on whatever the disk does: they see what was acknowledged, and nothing that was refused in this life. */
static void reads(uint64_t first) {
    static struct found found;
    CHECK(spandrel_durable_read(db, look, &found) == 1);
    for (uint64_t command = 0; command < FIRST_LEFT; command++) {
        enum fate fate = fates[command];
        CHECK(fate != DURABLE || has(&found, command));
        CHECK((fate != ABSENT && (fate != MAYBE || command < first)) || !has(&found, command));
    }
}

static void writes(uint64_t command) {
    int returned = spandrel_durable_write(db, add, &command), error = errno;
    if (returned >= 0) {
        CHECK(returned == 7 && !was_refused);
        fates[command] = DURABLE;
        say("durable %lu\n", command);
        return;
    }
    /* It is undone if it is longer than the log. The first one that the disk refuses may be there; later ones were refused before they began. */
    bool is_undone = why(error) == EMSGSIZE;
    fates[command] = is_undone || was_refused ? ABSENT : MAYBE;
    was_refused = was_refused || !is_undone;
    say("%s %lu %d %s\n", fates[command] == ABSENT ? "absent" : "maybe", command, error, spandrel_durable_error_text());
}

static bool opens(const char *directory, uint64_t log_size) {
    spandrel_durable_options options = named_options();
    options.log_size = log_size;
    was_refused = false;
    db = spandrel_durable_open(directory, &options, init, NULL);
    if (db) return true;
    int error = why(errno);
    say("refused opening: %d %s\n", error, spandrel_durable_error_text());
    return false;
}

static void first_life(const char *directory, bool dies) {
    if (!opens(directory, LOG_BYTES)) return;
    for (uint64_t command = 0; command <= LONG_COMMAND; command++) writes(command);
    reads(0);
    char copy[4096];
    snprintf(copy, sizeof copy, "%s.copy", directory);
    if (spandrel_durable_copy(db, copy) == 0)
        say("copied\n");
    else {
        int error = why(errno);
        say("no copy: %d %s\n", error, spandrel_durable_error_text());
    }
    for (uint64_t command = 7; command < 9; command++) writes(command);
    reads(0);
    if (dies) die();
    if (spandrel_durable_close(db) != 0) {
        int error = why(errno);
        say("refused closing: %d %s\n", error, spandrel_durable_error_text());
    }
}

/* Ends without closing. */
static void second_life(const char *directory) {
    if (!opens(directory, 0)) return;
    reads(FIRST_OF_SECOND_LIFE);
    for (uint64_t command = FIRST_OF_SECOND_LIFE; command < 12; command++) writes(command);
    reads(FIRST_OF_SECOND_LIFE);
}

static void looks(const char *directory, uint64_t command) {
    static struct found found;
    CHECK(opens(directory, 0));
    say("replayed %lu\n", durable_report(db).replayed);
    CHECK(spandrel_durable_read(db, look, &found) == 1);
    for (uint64_t at = 0; at < found.count; at++) say("found %lu\n", found.commands[at]);
    CHECK(spandrel_durable_write(db, add, &command) >= 0 && spandrel_durable_close(db) == 0);
}

int main(int count, char **arguments) {
#ifdef TRANSLATED
    CHECK(spandrel_durable_fix_addresses() == 0);
#endif
    CHECK(count == 4);
    const char *directory = arguments[1], *what = arguments[2];
    uint64_t command = strtoul(arguments[3], NULL, 10);
    if (strcmp(what, "looks") == 0) {
        looks(directory, command);
    } else if (strcmp(what, "left") == 0) {
        /* The log is long: its records are in the state's file after some time without a command, and not before. */
        CHECK(opens(directory, 0));
        for (uint64_t left = FIRST_LEFT; left < FIRST_LEFT + 4; left++) CHECK(spandrel_durable_write(db, add, &left) >= 0);
        die();
    } else {
        first_life(directory, strcmp(what, "dies") == 0);
        second_life(directory);
    }
    return 0;
}
