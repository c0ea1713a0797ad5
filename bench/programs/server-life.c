/* server-life: an hour of a server, in a minute or less.
 *
 * Our own; after what M. Johnstone and P. Wilson, "The memory fragmentation problem: solved?", ISMM 1998,
 * ask a test of fragmentation to have: real phases, lifetimes that depend on what an object is for, no
 * steady state. Stresses: memory that stays resident when what was live has gone. Time is counted in
 * seconds of the server's life. In each second every thread serves requests, which
 *
 *   - allocate some objects and free them in reverse order;
 *   - build a reply that grows by reallocation;
 *   - open sessions, most short (20 s), some of minutes, a few of half an hour, each with objects of its
 *     own;
 *   - put entries into a cache, which is bounded in bytes and forgets the oldest.
 *
 * Load and sizes change from phase to phase: see `phases`. At the end of each phase the sessions and caches
 * go on to the next thread, so that objects are freed by threads that did not allocate them; resident and
 * live bytes are written down at once and after `idle` milliseconds without work, in which an allocator may
 * give memory back.
 *
 * Units: requests per second of each thread at full load; seconds of each of the twelve phases;
 * milliseconds of real time. */
#include "program.h"

#include <time.h>

enum { WHEEL = 2048, OBJECTS_MAX = 12, SESSION_OBJECTS = 6, NODES_PER_MIB = 8192 };
static uint64_t threads = 2, rate = 1000, seconds = 300, idle = 300, seed = 1;

/* How the server is used for a while. Load in percent of the full rate; sizes up to 2^bits; cache of each
 * thread in KiB for each 100 requests per second of the full rate; whether the cache is dropped at the start;
 * MiB of a job's heap, alike scaled. */
static const struct phase {
    const char *name;
    uint32_t load, request_bits, session_bits, cache_bits, cache_kib;
    bool drop;
    uint32_t job_mib;
} phases[] = {
    {"start", 20, 9, 9, 10, 2048, false, 0},
    {"morning", 50, 10, 10, 11, 4096, false, 0},
    {"first peak", 100, 10, 10, 12, 8192, false, 0},
    {"noon", 60, 12, 10, 12, 6144, false, 0},
    {"new version", 60, 9, 11, 10, 4096, true, 0},
    {"afternoon", 70, 10, 11, 14, 8192, false, 0},
    {"report", 50, 10, 11, 14, 8192, false, 8},
    {"second peak", 100, 13, 9, 15, 12288, false, 0},
    {"decline", 40, 10, 9, 10, 4096, false, 0},
    {"night", 5, 9, 9, 9, 512, true, 0},
    {"import", 10, 9, 12, 16, 8192, false, 16},
    {"next morning", 50, 10, 10, 11, 4096, false, 0},
};
enum { PHASES = sizeof phases / sizeof phases[0] };

struct session {
    struct session *next;
    uint64_t ends;
    struct object objects[SESSION_OBJECTS];
};

struct entry {
    struct entry *newer;
    struct object value;
};

/* What a thread looks after: its sessions by the second of their end, and its part of the cache. */
struct shard {
    uint64_t random, second, sum;
    struct session *wheel[WHEEL];
    struct entry *oldest, *newest;
    uint64_t cached_bytes;
};

struct turn {
    struct shard *shard;
    const struct phase *phase;
};

/* Up to 2^bits, each power of two half as likely as the next smaller one, from 16 bytes on. */
static uint32_t random_size(uint64_t *random, uint32_t bits) {
    uint64_t draw = next_random(random);
    uint32_t power = 4 + (uint32_t)__builtin_ctzll(draw | 1ull << (bits - 4));
    return (1u << power) - (uint32_t)((draw >> 32) & ((1u << (power - 1)) - 1));
}

/* From 64 to 2^bits bytes, each power of two as likely as another: what is kept is larger than what is passed on. */
static uint32_t even_size(uint64_t *random, uint32_t bits) {
    uint32_t power = 7 + below(random, bits - 6);
    return between(random, 1u << (power - 1), 1u << power);
}

static struct object take(struct ledger *ledger, struct shard *shard, uint32_t size) {
    struct object object = take_object(ledger, size, (uint32_t)shard->random);
    for (uint32_t at = 64; at + 8 < object.size; at += 64) object.at[at] = (unsigned char)at;
    shard->sum += object.size;
    return object;
}

/* A reply is written piece by piece; its buffer grows by half. */
static void reply(struct ledger *ledger, struct shard *shard, uint32_t bits) {
    uint32_t wanted = 4 * random_size(&shard->random, bits), size = 64, tag = (uint32_t)shard->random;
    struct object buffer = take_object(ledger, size, tag);
    while (size < wanted) {
        size += size / 2;
        check_object(buffer);
        buffer.at = realloc(buffer.at, size);
        CHECK(buffer.at != NULL, "no memory for %u bytes", size);
        CHECK(memcmp(buffer.at, &(uint64_t){mark_of(tag, buffer.size)}, 8) == 0, "growing lost what was written");
        gave(ledger, buffer.size);
        took(ledger, size);
        buffer.size = size;
        mark(buffer.at, size, tag);
    }
    shard->sum += size;
    give_object(ledger, buffer);
}

static void open_session(struct ledger *ledger, struct shard *shard, uint32_t bits) {
    struct session *session = take_table(ledger, 1, sizeof *session);
    uint32_t draw = below(&shard->random, 100);
    double mean = draw < 80 ? 20 : draw < 98 ? 240 : 1800, wait = 0;
    /* Between nothing and twice the mean. */
    wait = 1 + 2 * mean * uniform(&shard->random);
    session->ends = shard->second + (uint64_t)wait;
    for (int i = 0; i < SESSION_OBJECTS; i++)
        session->objects[i] = take(ledger, shard, random_size(&shard->random, bits));
    struct session **place = &shard->wheel[session->ends % WHEEL];
    session->next = *place;
    *place = session;
}

/* Closes what ends now; with `all`, everything. */
static void close_sessions(struct ledger *ledger, struct shard *shard, uint64_t slot, bool all) {
    for (struct session **place = &shard->wheel[slot]; *place != NULL;) {
        struct session *session = *place;
        if (!all && session->ends > shard->second) {
            place = &session->next;
            continue;
        }
        *place = session->next;
        for (int i = 0; i < SESSION_OBJECTS; i++) give_object(ledger, session->objects[i]);
        give_table(ledger, session, 1, sizeof *session);
    }
}

static void forget(struct ledger *ledger, struct shard *shard, uint64_t most) {
    while (shard->cached_bytes > most) {
        struct entry *entry = shard->oldest;
        shard->oldest = entry->newer;
        if (shard->oldest == NULL) shard->newest = NULL;
        shard->cached_bytes -= entry->value.size;
        give_object(ledger, entry->value);
        give_table(ledger, entry, 1, sizeof *entry);
    }
}

static void remember(struct ledger *ledger, struct shard *shard, uint32_t bits, uint64_t most) {
    struct entry *entry = take_table(ledger, 1, sizeof *entry);
    entry->value = take(ledger, shard, even_size(&shard->random, bits));
    if (shard->newest != NULL) shard->newest->newer = entry;
    else shard->oldest = entry;
    shard->newest = entry;
    shard->cached_bytes += entry->value.size;
    forget(ledger, shard, most);
}

static void request(struct ledger *ledger, struct shard *shard, const struct phase *phase, uint64_t cache_bytes) {
    struct object objects[OBJECTS_MAX];
    uint32_t count = between(&shard->random, 4, OBJECTS_MAX), draw = below(&shard->random, 100);
    for (uint32_t i = 0; i < count; i++)
        objects[i] = take(ledger, shard, random_size(&shard->random, phase->request_bits));
    if (draw < 20) reply(ledger, shard, phase->request_bits);
    if (draw >= 90) open_session(ledger, shard, phase->session_bits);
    if (draw >= 20 && draw < 50) remember(ledger, shard, phase->cache_bits, cache_bytes);
    while (count > 0) give_object(ledger, objects[--count]);
}

/* A job builds a heap of small nodes among everything else, and frees it in another order. */
static void job(struct ledger *ledger, struct shard *shard, uint64_t mib) {
    uint64_t count = mib * NODES_PER_MIB;
    struct object *nodes = take_table(ledger, count, sizeof *nodes);
    for (uint64_t i = 0; i < count; i++) nodes[i] = take(ledger, shard, random_size(&shard->random, 9));
    for (uint64_t i = 0; i < count; i++) {
        uint64_t other = i + below(&shard->random, (uint32_t)(count - i));
        struct object chosen = nodes[other];
        nodes[other] = nodes[i];
        give_object(ledger, chosen);
    }
    give_table(ledger, nodes, count, sizeof *nodes);
}

static void *serve(void *argument) {
    struct turn *turn = argument;
    struct shard *shard = turn->shard;
    const struct phase *phase = turn->phase;
    struct ledger ledger = {0, 0};
    uint64_t cache_bytes = phase->cache_kib * 1024ull * rate / 100;
    if (phase->drop) forget(&ledger, shard, 0);
    for (uint64_t second = 0; second < seconds; second++, shard->second++) {
        close_sessions(&ledger, shard, shard->second % WHEEL, false);
        /* Load swings by a fifth within a minute. */
        uint64_t swing = second % 60 < 30 ? 90 + second % 30 : 119 - second % 30;
        uint64_t requests = rate * phase->load * swing / 10000 + 1;
        for (uint64_t i = 0; i < requests; i++) request(&ledger, shard, phase, cache_bytes);
        if (phase->job_mib > 0 && second == seconds / 2) job(&ledger, shard, phase->job_mib * rate / 100 + 1);
    }
    forget(&ledger, shard, cache_bytes);
    close_ledger(&ledger, 0);
    return NULL;
}

static void sleep_ms(uint64_t ms) {
    struct timespec left = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    while (ms > 0 && nanosleep(&left, &left) != 0) CHECK(errno == EINTR, "sleep");
}

int main(int argc, char **argv) {
    struct argument list[] = {
        {"threads", &threads, 1, THREADS_MAX, "threads that serve requests"},
        {"rate", &rate, 1, 1000000, "requests per second of each thread at full load"},
        {"seconds", &seconds, 1, 100000, "of each of the twelve phases"},
        {"idle", &idle, 0, 60000, "milliseconds of real time without work after each phase"},
        {"seed", &seed, 0, UINT64_MAX, "of the random numbers"},
    };
    PARSE(argc, argv, "server-life: an hour of a server", list);
    struct ledger ledger = {0, 0};
    struct shard *shards = take_table(&ledger, threads, sizeof *shards);
    for (uint64_t i = 0; i < threads; i++) shards[i].random = mix(seed + i);
    settle(&ledger);
    char more[4096] = ",\"phases\":[";
    for (int phase = 0; phase < PHASES; phase++) {
        struct turn turns[THREADS_MAX];
        for (uint64_t i = 0; i < threads; i++)
            turns[i] = (struct turn){&shards[(i + (uint64_t)phase) % threads], &phases[phase]};
        run_threads(threads, serve, turns, sizeof turns[0]);
        uint64_t busy = resident();
        sleep_ms(idle);
        size_t length = strlen(more);
        snprintf(more + length, sizeof more - length,
                 "%s{\"name\":\"%s\",\"live\":%lld,\"rss\":%llu,\"rss_idle\":%llu}",
                 phase ? "," : "", phases[phase].name, (long long)total.live, (unsigned long long)busy,
                 (unsigned long long)resident());
    }
    strcat(more, "]");
    before_drain();
    uint64_t sum = 0;
    for (uint64_t i = 0; i < threads; i++) {
        sum += shards[i].sum;
        forget(&ledger, &shards[i], 0);
        for (uint64_t slot = 0; slot < WHEEL; slot++) close_sessions(&ledger, &shards[i], slot, true);
    }
    give_table(&ledger, shards, threads, sizeof *shards);
    close_ledger(&ledger, sum);
    return finish("server-life", more);
}
