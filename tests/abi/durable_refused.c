/* Adds to a list until the state refuses, as its files cannot become longer, and looks at what is left: all that was acknowledged, and nothing else.
 *   durable_refused      SPANDREL_DURABLE_DIR is set, and files are limited */
#include <mangosteen.h>

#include "durable.h"

enum { BYTES = 64 << 10, MOST = 10000 };

struct node {
    struct node *next;
    uint64_t number;
    char bytes[BYTES];
};

SPANDREL_DURABLE static struct node *first;
SPANDREL_DURABLE static uint64_t length;

struct request {
    bool is_read;
    uint64_t seen;
};

static bool reads(void *client) {
    return ((struct request *)client)->is_read;
}

static void process(void *client) {
    struct request *request = client;
    if (request->is_read) {
        uint64_t expected = length;
        for (const struct node *node = first; node; node = node->next) CHECK(node->number == --expected);
        CHECK(expected == 0);
        request->seen = length;
        return;
    }
    struct node *node = malloc(sizeof *node);
    CHECK(node);
    memset(node->bytes, 7, sizeof node->bytes);
    node->number = length++;
    node->next = first;
    first = node;
}

int main(void) {
    struct request add = {false, 0}, look = {true, 0};
    uint64_t acknowledged = 0;
    CHECK(initMangosteen(NULL, NULL, reads, process, NULL, NULL, MODE_LOCAL) == 0);
    while (acknowledged < MOST && ClientCmd(&add) == 0) acknowledged++;
    CHECK(acknowledged > 100 && acknowledged < MOST);
    /* Refused after its commands have run, and before. */
    for (int turn = 0; turn < 3; turn++) {
        CHECK(ClientCmd(&look) == 0 && look.seen == acknowledged && length == acknowledged);
        CHECK(ClientCmd(&add) == -1);
    }
    printf("%s\n", spandrel_durable_error_text());
    return 0;
}
