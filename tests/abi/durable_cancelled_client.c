/* A thread of a program whose memory is the state is cancelled while its command runs, which writes or reads; others go on.
 *   durable_cancelled_client writes|reads   SPANDREL_DURABLE_DIR is set */
#include <mangosteen.h>

#include "durable.h"

#include <pthread.h>
#include <stdatomic.h>

SPANDREL_DURABLE static uint64_t number;

struct request {
    bool is_read, is_slow;
};

static atomic_int begun;

static bool reads(void *client) {
    return ((struct request *)client)->is_read;
}

static void process(void *client) {
    struct request *request = client;
    if (!request->is_read) number++;
    if (request->is_slow) {
        atomic_store(&begun, 1);
        for (int i = 0; i < 50; i++) usleep(1000);
    }
}

static void *work(void *request) {
    ClientCmd(request);
    pthread_testcancel();
    return NULL;
}

int main(int arguments, char **argument) {
    CHECK(arguments == 2);
    struct request slow = {strcmp(argument[1], "reads") == 0, true}, add = {false, false};
    CHECK(initMangosteen(NULL, NULL, reads, process, NULL, NULL, MODE_LOCAL) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, work, &slow) == 0);
    while (!atomic_load(&begun)) usleep(100);
    void *result;
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    CHECK(ClientCmd(&add) == 0 && number == (slow.is_read ? 1 : 2));
    return 0;
}
