/* Threads read and write texts and numbers by their keys until the process is killed, and write down what they call and what is returned: a judge finds an order of the calls that explains
 * all of it, or finds that there is none. The lines are those of `tests/histories`.
 *   durable_history DIRECTORY churn HISTORY ROUND | look HISTORY ROUNDS */
#include "durable_named.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

enum { THREADS = 4, GROUPS = 3, ROUNDS = 8, MOST = 4, GROUP = 48, KEY = 64, VALUE = 80, LONGEST = 1 << 16 };

struct entry {
    struct entry *next;
    char key[KEY];
    size_t length;
    char *value;
};

struct map {
    struct entry *first;
};

enum kind { GET, LEN, SET_TO, APPEND, INCR, DEL };
static const char *const names[] = {"get", "len", "set", "append", "incr", "del"};

struct command {
    enum kind kind;
    char key[KEY], value[VALUE];
    /* What it has found. */
    bool is_there;
    size_t length;
    char result[LONGEST];
};

struct call {
    int count;
    struct command commands[MOST];
};

static spandrel_durable *db;
static int history;
static unsigned long seed, first_round;

static int init(spandrel_durable *state, void *argument) {
    (void)argument;
    if (spandrel_durable_root(state, "map")) return 0;
    struct map *map = spandrel_durable_calloc(state, 1, sizeof *map);
    CHECK(map && spandrel_durable_set_root(state, "map", map) == 0);
    return 0;
}

static struct entry **place_of(spandrel_durable *state, const char *key) {
    struct map *map = spandrel_durable_root(state, "map");
    CHECK(map);
    struct entry **place = &map->first;
    while (*place && strcmp((*place)->key, key) != 0) place = &(*place)->next;
    return place;
}

static void found(struct command *command, const char *text, size_t length) {
    CHECK(length < LONGEST);
    command->is_there = true;
    command->length = length;
    for (size_t i = 0; i < length; i++) command->result[i] = text[i];
}

static void found_number(struct command *command, unsigned long number) {
    char text[32];
    found(command, text, (size_t)snprintf(text, sizeof text, "%lu", number));
}

/* The entry of a key, with this value behind what it keeps of its own. */
static struct entry *put(spandrel_durable *state, const char *key, const char *value, bool keeps) {
    struct entry **place = place_of(state, key), *entry = *place;
    size_t bytes = strlen(value);
    if (!entry) {
        entry = spandrel_durable_calloc(state, 1, sizeof *entry);
        CHECK(entry);
        for (size_t i = 0; i <= strlen(key); i++) entry->key[i] = key[i];
        WROTE(entry->key, sizeof entry->key);
        SET(*place, entry);
    }
    size_t kept = keeps ? entry->length : 0;
    char *text = spandrel_durable_realloc(state, entry->value, kept + bytes + 1);
    CHECK(text);
    for (size_t i = 0; i <= bytes; i++) text[kept + i] = value[i];
    WROTE(text + kept, bytes + 1);
    SET(entry->value, text);
    SET(entry->length, kept + bytes);
    return entry;
}

static void run(spandrel_durable *state, struct command *command) {
    struct entry **place = place_of(state, command->key), *entry = *place;
    command->is_there = false;
    switch (command->kind) {
    case GET:
        if (entry) found(command, entry->value, entry->length);
        break;
    case LEN:
        found_number(command, entry ? entry->length : 0);
        break;
    case SET_TO:
        put(state, command->key, command->value, false);
        found(command, "OK", 2);
        break;
    case APPEND:
        found_number(command, put(state, command->key, command->value, true)->length);
        break;
    case INCR: {
        char text[32];
        snprintf(text, sizeof text, "%lu", 1 + (entry ? strtoul(entry->value, NULL, 10) : 0));
        put(state, command->key, text, false);
        found(command, text, strlen(text));
        break;
    }
    case DEL:
        if (entry) {
            SET(*place, entry->next);
            CHECK(spandrel_durable_free(state, entry->value) == 0 && spandrel_durable_free(state, entry) == 0);
        }
        found_number(command, entry != NULL);
    }
}

static int run_all(spandrel_durable *state, void *argument) {
    struct call *call = argument;
    for (int number = 0; number < call->count; number++) run(state, &call->commands[number]);
    return 0;
}

static unsigned long random_below(unsigned long *number, unsigned long end) {
    *number = *number * 6364136223846793005UL + 1442695040888963407UL;
    return (*number >> 33) % end;
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* One system call: lines do not mix. */
static void append(const char *line, size_t length) { CHECK(write(history, line, length) == (ssize_t)length); }

static uint64_t note_call(const struct call *call, unsigned long client) {
    char line[1 << 12];
    uint64_t at = now(), id = at % ((uint64_t)1 << 46) * 64 + client;
    int length = sprintf(line, "{\"call\":%lu,\"id\":%lu,\"client\":%lu,\"do\":[", at, id, client);
    for (int number = 0; number < call->count; number++) {
        const struct command *command = &call->commands[number];
        const char *comma = number ? "," : "";
        length += sprintf(line + length, "%s[\"%s\",\"%s\"", comma, names[command->kind], command->key);
        if (command->kind == SET_TO || command->kind == APPEND) length += sprintf(line + length, ",\"%s\"", command->value);
        length += sprintf(line + length, "]");
    }
    append(line, (size_t)(length + sprintf(line + length, "]}\n")));
    return id;
}

static void note_return(const struct call *call, uint64_t id) {
    static _Thread_local char line[MOST * LONGEST + 256];
    int length = sprintf(line, "{\"return\":%lu,\"id\":%lu,\"results\":[", now(), id);
    for (int number = 0; number < call->count; number++) {
        const struct command *command = &call->commands[number];
        const char *comma = number ? "," : "";
        if (command->is_there)
            length += sprintf(line + length, "%s\"%.*s\"", comma, (int)command->length, command->result);
        else
            length += sprintf(line + length, "%snull", comma);
    }
    append(line, (size_t)(length + sprintf(line + length, "]}\n")));
}

static void make_call(const struct call *made, unsigned long client) {
    struct call *call = (struct call *)made;
    bool reads = true;
    for (int number = 0; number < call->count; number++) reads = reads && call->commands[number].kind <= LEN;
    uint64_t id = note_call(call, client);
    CHECK((reads ? spandrel_durable_read : spandrel_durable_write)(db, run_all, call) == 0);
    note_return(call, id);
}

static void draw(struct command *command, unsigned long *number, const char *group, const char *value) {
    static const enum kind kinds[] = {GET, GET, GET, LEN, SET_TO, SET_TO, APPEND, APPEND, DEL};
    bool counts = random_below(number, 3) == 0;
    command->kind = kinds[random_below(number, sizeof kinds / sizeof *kinds)];
    if (counts) command->kind = random_below(number, 3) ? INCR : GET;
    snprintf(command->key, KEY, "%s:%s", group, counts ? "count" : random_below(number, 2) ? "one" : "two");
    snprintf(command->value, VALUE, "%s", value);
}

static void *churn(void *argument) {
    unsigned long client = (unsigned long)(uintptr_t)argument, number = seed ^ first_round << 8 ^ client;
    struct call *call = malloc(sizeof *call);
    CHECK(call);
    for (unsigned long turn = 0;; turn++) {
        char group[GROUP], value[VALUE];
        snprintf(group, sizeof group, "%lu-%lu", first_round / ROUNDS, random_below(&number, GROUPS));
        call->count = random_below(&number, 6) == 0 ? 2 + (int)random_below(&number, MOST - 1) : 1;
        for (int part = 0; part < call->count; part++) {
            /* No two are the same. */
            snprintf(value, sizeof value, "%lu.%lu.%lu.%d,", first_round, client, turn, part);
            draw(&call->commands[part], &number, group, value);
        }
        make_call(call, client);
    }
    return NULL;
}

static void look(unsigned long rounds) {
    static const char *const keys[] = {"count", "one", "two"};
    struct call *call = malloc(sizeof *call);
    CHECK(call);
    call->count = 1;
    for (unsigned long era = 0; era <= rounds / ROUNDS; era++)
        for (unsigned long group = 0; group < GROUPS; group++)
            for (int key = 0; key < 3; key++) {
                call->commands[0].kind = GET;
                snprintf(call->commands[0].key, KEY, "%lu-%lu:%s", era, group, keys[key]);
                make_call(call, 0);
            }
    free(call);
}

int main(int count, char **arguments) {
#ifdef TRANSLATED
    CHECK(spandrel_durable_fix_addresses() == 0);
#endif
    CHECK(count == 5);
    history = open(arguments[3], O_WRONLY | O_APPEND);
    CHECK(history >= 0);
    spandrel_durable_options options = named_options();
    options.log_size = 1 << 20;
    db = spandrel_durable_open(arguments[1], &options, init, NULL);
    CHECK(db);
    if (strcmp(arguments[2], "look") == 0) {
        look(strtoul(arguments[4], NULL, 10));
        CHECK(spandrel_durable_close(db) == 0);
        return 0;
    }
    first_round = strtoul(arguments[4], NULL, 10);
    seed = (unsigned long)now();
    puts("begun");
    fflush(stdout);
    pthread_t threads[THREADS];
    for (uintptr_t thread = 0; thread < THREADS; thread++)
        CHECK(pthread_create(&threads[thread], NULL, churn, (void *)thread) == 0);
    pthread_join(threads[0], NULL);
    return 1;
}
