/* The server of the Mangosteen paper (ATC '24, section 6.4): a request adds an array of bytes to one in memory, and is answered by the sum of all bytes when
 * that is durable. add_client.c sends requests.
 *
 *   cc -fsanitize=thread -fno-builtin -U_FORTIFY_SOURCE -c add_server.c
 *   cc add_server.o -lspandrel_durable -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free -o add_server
 *   SPANDREL_DURABLE_DIR=array SPANDREL_DURABLE_SOCKET=array.socket ./add_server
 */
#include <mangosteen.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* A request, as it lies on the wire; `length` bytes follow. */
struct add {
    uint32_t length;
    unsigned char bytes[];
};

/* The array, and the sum of its bytes: variables like any others, but that they are durable. */
SPANDREL_DURABLE unsigned char *array;
SPANDREL_DURABLE uint64_t array_length;
SPANDREL_DURABLE uint64_t sum;

struct client {
    const struct add *request;
    struct {
        uint64_t length, sum;
    } answer;
};

static void *initAppClient(void *params) {
    (void)params;
    return calloc(1, sizeof(struct client));
}

static void destroyAppClient(void *client) {
    free(client);
}

static size_t frame(const void *bytes, size_t length) {
    uint32_t follow;
    if (length < sizeof follow) return 0;
    memcpy(&follow, bytes, sizeof follow);
    if (follow > 1 << 20) return SIZE_MAX;
    return length < sizeof follow + follow ? 0 : sizeof follow + follow;
}

static void deserializeRequest(void *client, void *request) {
    ((struct client *)client)->request = request;
}

static bool isReadOnly(void *client) {
    return ((struct client *)client)->request->length == 0;
}

static void processRequest(void *opaque) {
    struct client *client = opaque;
    const struct add *request = client->request;
    if (request->length > 0) {
        unsigned char *longer = realloc(array, array_length + request->length);
        if (longer) {
            memcpy(longer + array_length, request->bytes, request->length);
            array = longer;
            array_length += request->length;
            for (uint32_t i = 0; i < request->length; i++) sum += request->bytes[i];
        }
    }
    client->answer.length = array_length;
    client->answer.sum = sum;
}

static mangoResponse *getResponse(void *client) {
    mangoResponse *response = malloc(sizeof *response);
    if (response) {
        response->response = &((struct client *)client)->answer;
        response->size = sizeof ((struct client *)client)->answer;
    }
    return response;
}

int main(void) {
    mangosteenFraming(frame);
    initMangosteen(initAppClient, deserializeRequest, isReadOnly, processRequest, destroyAppClient, getResponse, MODE_RPC);
    fprintf(stderr, "add_server: %s\n", spandrel_durable_error_text());
    return 1;
}
