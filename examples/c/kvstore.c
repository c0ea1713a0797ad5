/* The key-value store of the Mangosteen paper (ATC '24, Listings 2 to 4), in local mode. It reads requests from standard input, a line each:
 *   put INDEX VALUE    answers OK when the value is durable
 *   get INDEX          answers the value
 *
 *   cc -fsanitize=thread -fno-builtin -U_FORTIFY_SOURCE -c kvstore.c
 *   cc kvstore.o -lspandrel_durable -Wl,--wrap=malloc,--wrap=free -o kvstore
 *   SPANDREL_DURABLE_DIR=store ./kvstore
 */
#include <mangosteen.h>

#include <stdio.h>
#include <stdlib.h>

#define STORE_SZ 1024
#define VAL_SZ 100
#define RESP_SZ VAL_SZ

/* Listing 2: the store as it is without durability. */
char *store;

typedef struct kvCmd {
    enum { PUT, GET } type;
    unsigned int index;
    char value[VAL_SZ];
} kvCmd;

typedef struct kvClient {
    int id;
    kvCmd *currCmd;
    char resp[RESP_SZ];
} kvClient;

static void initKVStore(void) {
    store = malloc(STORE_SZ * VAL_SZ);
    memset(store, 0, STORE_SZ * VAL_SZ);
}

static void getValueAtIndex(kvClient *c) {
    memcpy(c->resp, &store[c->currCmd->index * VAL_SZ], VAL_SZ);
}

static void putValueAtIndex(kvClient *c) {
    memcpy(&store[c->currCmd->index * VAL_SZ], c->currCmd->value, VAL_SZ);
    memcpy(c->resp, "OK", 3);
}

static void handleRequest(kvClient *c) {
    if (c->currCmd->type == PUT)
        putValueAtIndex(c);
    else
        getValueAtIndex(c);
}

/* Listing 4: its callbacks. */
static void *initAppClient(void *params) {
    kvClient *c = calloc(1, sizeof(kvClient));
    c->id = *(int *)params;
    return c;
}

static void destroyAppClient(void *opaqueCtx) {
    free(opaqueCtx);
}

static void deserializeRequest(void *opaqueCtx, void *req) {
    ((kvClient *)opaqueCtx)->currCmd = (kvCmd *)req;
}

static bool isReadOnly(void *opaqueCtx) {
    return ((kvClient *)opaqueCtx)->currCmd->type != PUT;
}

static void processRequest(void *opaqueCtx) {
    handleRequest((kvClient *)opaqueCtx);
}

int main(void) {
    /* Listing 3. In a recovered program the store is that of the one before. */
    initKVStore();
    spandrel_durable_variable(&store, sizeof store);
    if (initMangosteen(NULL, NULL, isReadOnly, processRequest, NULL, NULL, MODE_LOCAL) != 0) {
        fprintf(stderr, "kvstore: %s\n", spandrel_durable_error_text());
        return 1;
    }
    int id = 1;
    kvClient *client = initAppClient(&id);
    kvCmd request;
    char line[200], word[4];
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        memset(&request, 0, sizeof request);
        int words = sscanf(line, "%3s %u %99s", word, &request.index, request.value);
        if (words < 2 || request.index >= STORE_SZ || (strcmp(word, "put") != 0 && strcmp(word, "get") != 0)) {
            puts("put INDEX VALUE, or get INDEX");
            continue;
        }
        request.type = strcmp(word, "put") == 0 ? PUT : GET;
        deserializeRequest(client, &request);
        if (ClientCmd(client) != 0) {
            fprintf(stderr, "kvstore: %s\n", spandrel_durable_error_text());
            return 1;
        }
        puts(client->resp);
    }
    destroyAppClient(client);
    return 0;
}
