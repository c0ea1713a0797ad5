/* Threads append to a list and take from it, until the process is killed. Each thread counts in shared memory what was acknowledged to it.
 *   durable_threads DIRECTORY churn|verify */
#include "durable_named.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

enum { THREADS = 4, KEPT = 500 };

struct node {
    struct node *next;
    uint64_t thread, number, bytes;
    unsigned char text[];
};

struct list {
    struct node *oldest, *newest;
    uint64_t length, added[THREADS], taken[THREADS];
};

/* What a thread was told: the number of commands that have returned. Shared memory of a file survives the process. */
static volatile uint64_t *acknowledged;
static spandrel_durable *db;

static unsigned char byte_of(uint64_t thread, uint64_t number, uint64_t at) {
    return (unsigned char)(thread * 31 + number * 7 + at);
}

static int init(spandrel_durable *state, void *argument) {
    (void)argument;
    if (spandrel_durable_root(state, "list")) return 0;
    struct list *list = spandrel_durable_calloc(state, 1, sizeof *list);
    CHECK(list && spandrel_durable_set_root(state, "list", list) == 0);
    return 0;
}

static struct list *list_of(spandrel_durable *state) {
    struct list *list = spandrel_durable_root(state, "list");
    CHECK(list);
    return list;
}

/* Adds a node, and takes the oldest one if the list is long. */
static int add(spandrel_durable *state, void *argument) {
    uint64_t thread = *(uint64_t *)argument;
    struct list *list = list_of(state);
    uint64_t number = list->added[thread], bytes = 1 + (number * 37 + thread * 11) % 700;
    struct node *node = spandrel_durable_malloc(state, sizeof *node + bytes);
    CHECK(node);
    SET(node->next, NULL);
    SET(node->thread, thread);
    SET(node->number, number);
    SET(node->bytes, bytes);
    for (uint64_t i = 0; i < bytes; i++) node->text[i] = byte_of(thread, number, i);
    WROTE(node->text, bytes);
    if (list->newest)
        SET(list->newest->next, node);
    else
        SET(list->oldest, node);
    SET(list->newest, node);
    SET(list->added[thread], number + 1);
    SET(list->length, list->length + 1);
    if (list->length > KEPT) {
        struct node *oldest = list->oldest;
        SET(list->taken[oldest->thread], list->taken[oldest->thread] + 1);
        SET(list->oldest, oldest->next);
        SET(list->length, list->length - 1);
        CHECK(spandrel_durable_free(state, oldest) == 0);
    }
    return (int)(number % 1000);
}

/* The list is whole, and has what was acknowledged. */
static int look(spandrel_durable *state, void *argument) {
    const struct list *list = list_of(state);
    uint64_t next[THREADS], length = 0;
    memcpy(next, list->taken, sizeof next);
    const struct node *last = NULL;
    for (const struct node *node = list->oldest; node; last = node, node = node->next, length++) {
        CHECK(node->thread < THREADS && node->number == next[node->thread]++);
        for (uint64_t i = 0; i < node->bytes; i++) CHECK(node->text[i] == byte_of(node->thread, node->number, i));
    }
    CHECK(length == list->length && last == list->newest);
    for (int thread = 0; thread < THREADS; thread++) {
        CHECK(next[thread] == list->added[thread]);
        if (argument) {
            /* One command of the thread may have been durable and not acknowledged. */
            CHECK(list->added[thread] >= acknowledged[thread] && list->added[thread] <= acknowledged[thread] + 1);
            acknowledged[thread] = list->added[thread];
        }
    }
    return 1;
}

static void *churn(void *argument) {
    uint64_t thread = (uint64_t)(uintptr_t)argument;
    for (uint64_t turn = 0;; turn++) {
        uint64_t number = acknowledged[thread];
        CHECK(spandrel_durable_write(db, add, &thread) == (int)(number % 1000));
        acknowledged[thread] = number + 1;
        if (turn % 64 == 0) CHECK(spandrel_durable_read(db, look, NULL) == 1);
    }
    return NULL;
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    char path[4096];
    snprintf(path, sizeof path, "%s.acknowledged", arguments[1]);
    int file = open(path, O_RDWR | O_CREAT, 0600);
    CHECK(file >= 0 && ftruncate(file, 4096) == 0);
    acknowledged = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(acknowledged != MAP_FAILED);
    spandrel_durable_options options = named_options();
    db = spandrel_durable_open(arguments[1], &options, init, NULL);
    CHECK(db);
    int all = 1;
    CHECK(spandrel_durable_read(db, look, &all) == 1);
    if (strcmp(arguments[2], "churn") == 0) {
        pthread_t threads[THREADS];
        for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, churn, (void *)i) == 0);
        puts("begun");
        fflush(stdout);
        pthread_join(threads[0], NULL);
    }
    void *base = spandrel_durable_base(db);
    CHECK(spandrel_durable_close(db) == 0);
    /* The same from the file alone, at the same addresses. */
    db = spandrel_durable_open(arguments[1], &options, init, NULL);
    CHECK(db && spandrel_durable_base(db) == base && durable_report(db).was_closed);
    CHECK(spandrel_durable_read(db, look, &all) == 1);
    CHECK(spandrel_durable_close(db) == 0);
    return 0;
}
