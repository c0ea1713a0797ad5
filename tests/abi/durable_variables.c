/* A program whose memory is its state: variables of a section and registered ones, objects from before init, frees outside of commands.
 *   durable_variables ROUND|early|other [long]      SPANDREL_DURABLE_DIR is set */
#include <mangosteen.h>

#include "durable.h"

struct node {
    struct node *next;
    char *name;
    int round;
};

/* An address in a block of its own. */
struct place {
    char before[64];
    char *data;
    char behind[56];
};

SPANDREL_DURABLE static struct node *first;
SPANDREL_DURABLE static struct place *place;
SPANDREL_DURABLE static uint64_t rounds = 1000;
static char big[3000];
static uint64_t transient = 5;

struct request {
    int round, is_read, is_long, is_aligned, seen;
    struct node *old;
};

static bool reads(void *client) {
    return ((struct request *)client)->is_read;
}

static bool is_of_state(const void *address) {
    const char *base = spandrel_durable_base(spandrel_durable_default());
    return (const char *)address >= base && (const char *)address < base + spandrel_durable_bytes(spandrel_durable_default());
}

static void process(void *client) {
    struct request *request = client;
    if (request->is_long) {
        /* More than the log holds: the command is undone, and runs again. */
        size_t bytes = (size_t)80 << 20;
        char *much = malloc(bytes);
        CHECK(much);
        memset(much, 1, bytes);
        free(much);
        return;
    }
    if (request->is_read) {
        CHECK(!request->old || spandrel_durable_usable_size(spandrel_durable_default(), request->old) == 0);
        for (const struct node *node = first; node; node = node->next) {
            CHECK(is_of_state(node) && is_of_state(node->name));
            char expected[20];
            snprintf(expected, sizeof expected, "round %d", node->round);
            CHECK(strcmp(node->name, expected) == 0);
            request->seen++;
        }
        return;
    }
    if (request->is_aligned) {
        free(place->data);
        CHECK(posix_memalign((void **)&place->data, 24, 100) == EINVAL && posix_memalign((void **)&place->data, 4, 100) == EINVAL);
        CHECK(posix_memalign((void **)&place->data, 64, 100) == 0 && is_of_state(place->data) && (uintptr_t)place->data % 64 == 0);
        memset(place->data, request->round, 100);
        return;
    }
    struct node *node = malloc(sizeof *node);
    char name[20];
    snprintf(name, sizeof name, "round %d", request->round);
    node->name = strdup(name);
    node->round = request->round;
    node->next = first;
    first = node;
    rounds++;
    big[request->round * 100] = (char)(request->round + 1);
    request->old = realloc(calloc(1, 10), 5000);
    CHECK(is_of_state(node) && is_of_state(node->name) && is_of_state(request->old));
}

int main(int count, char **arguments) {
    CHECK(count == 2 || count == 3);
    /* As usual; in a recovered program it is replaced. */
    first = malloc(sizeof *first);
    first->next = NULL;
    first->name = strdup("round -1");
    first->round = -1;
    place = calloc(1, sizeof *place);
    CHECK(spandrel_durable_variable(big, sizeof big) == 0);
    if (strcmp(arguments[1], "early") == 0) die();
    if (strcmp(arguments[1], "other") == 0) {
        CHECK(spandrel_durable_variable(&transient, sizeof transient) == 0);
        FAILS(EPROTOTYPE, initMangosteen(NULL, NULL, reads, process, NULL, NULL, MODE_LOCAL) == -1);
        return 0;
    }
    FAILS(EINVAL, initMangosteen(NULL, NULL, NULL, process, NULL, NULL, MODE_LOCAL) == -1);
    CHECK(initMangosteen(NULL, NULL, reads, process, NULL, NULL, MODE_LOCAL) == 0);
    FAILS(EINVAL, spandrel_durable_variable(&transient, sizeof transient) == -1);
    int round = atoi(arguments[1]);
    CHECK(rounds == 1000 + (uint64_t)round && is_of_state(first) && first->round == round - 1);
    for (int i = 0; i < 30; i++) CHECK(big[i * 100] == (i < round ? i + 1 : 0));
    struct request look = {.is_read = 1}, add = {.round = round}, align = {.round = round, .is_aligned = 1};
    CHECK(round == 0 ? !place->data : place->data && place->data[99] == round - 1);
    CHECK(ClientCmd(&align) == 0);
    CHECK(ClientCmd(&look) == 0 && look.seen == round + 1);
    CHECK(ClientCmd(&add) == 0);
    /* Freed by the next command that writes; until then its memory is no other object's. */
    free(add.old);
    struct node *mine = malloc(sizeof *mine);
    CHECK(mine && !is_of_state(mine));
    free(mine);
    look.seen = 0;
    CHECK(ClientCmd(&look) == 0 && look.seen == round + 2);
    if (count == 3) {
        struct request much = {.is_long = 1};
        CHECK(ClientCmd(&much) == 0);
        look = (struct request){.is_read = 1, .old = add.old};
        CHECK(ClientCmd(&look) == 0);
    }
    die();
    return 0;
}
