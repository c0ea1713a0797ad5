/* What the allocation programs share: arguments, random numbers, objects that are checked, an account of
 * what was asked for, threads, and the line that is printed at the end.
 *
 * Every program does a fixed amount of work, which its arguments and the seed decide: the processor time of
 * two allocators is that of the same requests. Every object is marked when it is handed out and looked at
 * before it goes back: an allocator that hands out memory twice fails instead of being fast. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Exit code of a program that found something wrong, and of one that was called wrongly. */
enum { WRONG = 1, USAGE = 2 };
enum { THREADS_MAX = 256 };

#define CHECK(condition, ...)                                              \
    do {                                                                   \
        if (__builtin_expect(!(condition), 0)) {                           \
            fprintf(stderr, "%s:%d: failed: ", __FILE__, __LINE__);        \
            fprintf(stderr, __VA_ARGS__);                                  \
            fputc('\n', stderr);                                           \
            _exit(WRONG);                                                  \
        }                                                                  \
    } while (0)

/* ---- arguments: NAME=NUMBER --------------------------------------------------------------------------- */

struct argument {
    const char *name;
    uint64_t *value; /* holds the default */
    uint64_t min, max;
    const char *what;
};

static inline void usage(const char *about, const struct argument *list, size_t count) {
    fprintf(stderr, "%s\narguments, as NAME=NUMBER:\n", about);
    for (size_t i = 0; i < count; i++)
        fprintf(stderr, "  %-12s %s [%llu]\n", list[i].name, list[i].what, (unsigned long long)*list[i].value);
    _exit(USAGE);
}

static inline void parse(int argc, char **argv, const char *about, struct argument *list, size_t count) {
    for (int at = 1; at < argc; at++) {
        const char *equals = strchr(argv[at], '=');
        struct argument *found = NULL;
        for (size_t i = 0; equals != NULL && i < count; i++) {
            size_t length = (size_t)(equals - argv[at]);
            if (strlen(list[i].name) == length && strncmp(list[i].name, argv[at], length) == 0) found = &list[i];
        }
        if (found == NULL) usage(about, list, count);
        char *end = NULL;
        errno = 0;
        uint64_t value = strtoull(equals + 1, &end, 10);
        if (errno != 0 || end == equals + 1 || *end != '\0' || value < found->min || value > found->max) {
            fprintf(stderr, "%s: a number from %llu to %llu is wanted\n", argv[at], (unsigned long long)found->min,
                    (unsigned long long)found->max);
            _exit(USAGE);
        }
        *found->value = value;
    }
}

#define PARSE(argc, argv, about, list) parse(argc, argv, about, list, sizeof(list) / sizeof((list)[0]))

/* ---- random numbers (splitmix64) ---------------------------------------------------------------------- */

static inline uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static inline uint64_t next_random(uint64_t *state) { return mix(*state += 0x9e3779b97f4a7c15ull); }

/* Below `bound`, by multiplication: a division would cost more than some allocators. */
static inline uint32_t below(uint64_t *state, uint32_t bound) {
    return (uint32_t)(((next_random(state) >> 32) * bound) >> 32);
}

/* From `low` to `high`, both included. */
static inline uint32_t between(uint64_t *state, uint32_t low, uint32_t high) {
    return low + below(state, high - low + 1);
}

/* Between 0 and 1, without 1. */
static inline double uniform(uint64_t *state) { return (double)(next_random(state) >> 11) * 0x1p-53; }

/* ---- the account of what was asked for ---------------------------------------------------------------- */

/* A thread's own account. It is settled with that of the program now and then, so that counting costs little;
 * the program's peak is exact to this many bytes for each thread. */
struct ledger {
    int64_t pending;
    uint64_t operations;
};
enum { SETTLE_BYTES = 64 << 10 };

static struct {
    int64_t live, peak, live_at_end;
    uint64_t operations, checksum, rss_at_end;
} total;

static inline void settle(struct ledger *ledger) {
    int64_t live = __atomic_add_fetch(&total.live, ledger->pending, __ATOMIC_RELAXED);
    int64_t peak = __atomic_load_n(&total.peak, __ATOMIC_RELAXED);
    while (live > peak
           && !__atomic_compare_exchange_n(&total.peak, &peak, live, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    ledger->pending = 0;
}

static inline void took(struct ledger *ledger, size_t bytes) {
    ledger->operations++;
    ledger->pending += (int64_t)bytes;
    if (__builtin_expect(ledger->pending > SETTLE_BYTES, 0)) settle(ledger);
}

static inline void gave(struct ledger *ledger, size_t bytes) {
    ledger->operations++;
    ledger->pending -= (int64_t)bytes;
    if (__builtin_expect(ledger->pending < -SETTLE_BYTES, 0)) settle(ledger);
}

/* At the end of a thread. The sum is one that does not depend on who was faster. */
static inline void close_ledger(struct ledger *ledger, uint64_t checksum) {
    settle(ledger);
    __atomic_add_fetch(&total.operations, ledger->operations, __ATOMIC_RELAXED);
    __atomic_add_fetch(&total.checksum, checksum, __ATOMIC_RELAXED);
    ledger->operations = 0;
}

/* ---- objects ------------------------------------------------------------------------------------------ */

/* What a program knows of an object; the tag is not in the object, so that two owners of one place differ. */
struct object {
    unsigned char *at;
    uint32_t size, tag;
};

static inline uint64_t mark_of(uint32_t tag, uint32_t size) {
    return ((uint64_t)tag << 32 | size) * 0x9e3779b97f4a7c15ull;
}

/* Writes the first and the last word of an object, of a small one every byte. */
static inline void mark(unsigned char *at, uint32_t size, uint32_t tag) {
    uint64_t word = mark_of(tag, size);
    if (size >= 16) memcpy(at + size - 8, &word, 8);
    if (size >= 8) memcpy(at, &word, 8);
    else memcpy(at, &word, size);
}

static inline bool is_marked(const unsigned char *at, uint32_t size, uint32_t tag) {
    uint64_t word = mark_of(tag, size), first = 0, last = 0;
    if (size < 8) return memcmp(at, &word, size) == 0;
    memcpy(&first, at, 8);
    if (size < 16) return first == word;
    memcpy(&last, at + size - 8, 8);
    return first == word && last == word;
}

static inline void check_object(struct object object) {
    CHECK(is_marked(object.at, object.size, object.tag), "object %p of %u bytes has other contents",
          (void *)object.at, object.size);
}

static inline struct object take_object(struct ledger *ledger, uint32_t size, uint32_t tag) {
    struct object object = {(unsigned char *)malloc(size), size, tag};
    CHECK(object.at != NULL, "no memory for %u bytes", size);
    mark(object.at, size, tag);
    took(ledger, size);
    return object;
}

static inline void give_object(struct ledger *ledger, struct object object) {
    check_object(object);
    gave(ledger, object.size);
    free(object.at);
}

/* The program's own tables, zeroed; they are on the account too. */
static inline void *take_table(struct ledger *ledger, size_t count, size_t each) {
    void *table = calloc(count, each);
    CHECK(table != NULL, "no memory for a table of %zu", count);
    took(ledger, count * each);
    return table;
}

static inline void give_table(struct ledger *ledger, void *table, size_t count, size_t each) {
    gave(ledger, count * each);
    free(table);
}

/* ---- threads ------------------------------------------------------------------------------------------ */

static inline pthread_t start_thread(void *(*body)(void *), void *argument) {
    pthread_t thread;
    int failed = pthread_create(&thread, NULL, body, argument);
    CHECK(failed == 0, "no thread: %s", strerror(failed));
    return thread;
}

static inline void join_thread(pthread_t thread) {
    int failed = pthread_join(thread, NULL);
    CHECK(failed == 0, "join: %s", strerror(failed));
}

/* Runs `body` in `count` threads, each on its own element of an array, and waits for them. */
static inline void run_threads(uint64_t count, void *(*body)(void *), void *arguments, size_t stride) {
    pthread_t threads[THREADS_MAX];
    CHECK(count <= THREADS_MAX, "too many threads");
    for (uint64_t i = 0; i < count; i++) threads[i] = start_thread(body, (char *)arguments + i * stride);
    for (uint64_t i = 0; i < count; i++) join_thread(threads[i]);
}

/* The same, each on its number. */
static inline void run_numbered(uint64_t count, void *(*body)(void *)) {
    uint64_t numbers[THREADS_MAX];
    for (uint64_t i = 0; i < THREADS_MAX; i++) numbers[i] = i;
    run_threads(count, body, numbers, sizeof numbers[0]);
}

/* ---- the end ------------------------------------------------------------------------------------------ */

/* Kibibytes of a line `Name:   123 kB` of a file; nothing here allocates. */
static inline uint64_t kibibytes(const char *path, const char *name) {
    char text[8192];
    size_t filled = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0, "%s: %s", path, strerror(errno));
    for (ssize_t got = 1; got > 0 && filled < sizeof text - 1; filled += got > 0 ? (size_t)got : 0)
        got = read(file, text + filled, sizeof text - 1 - filled);
    close(file);
    text[filled] = '\0';
    const char *line = strstr(text, name);
    CHECK(line != NULL, "%s: no %s", path, name);
    return strtoull(line + strlen(name), NULL, 10);
}

/* Resident bytes; the sum over all mappings is exact, that in `statm` is off by some pages per processor. */
static inline uint64_t resident(void) { return kibibytes("/proc/self/smaps_rollup", "\nRss:") << 10; }

/* Between the work and the drain, all accounts settled. */
static inline void before_drain(void) {
    total.live_at_end = __atomic_load_n(&total.live, __ATOMIC_RELAXED);
    total.rss_at_end = resident();
}

/* After the drain: prints what happened. `more` is further members of the object, each with a comma before
 * it, or empty. The most that was resident is the kernel's count for this program alone: what a parent is told
 * when a child ends begins with the parent's own. */
static inline int finish(const char *program, const char *more) {
    char line[8192];
    uint64_t drained = resident(), peak = kibibytes("/proc/self/status", "\nVmHWM:") << 10;
    /* The kernel's peak is off by some pages per processor. */
    if (peak < total.rss_at_end) peak = total.rss_at_end;
    if (peak < drained) peak = drained;
    CHECK(total.live == 0, "%lld bytes are not accounted for", (long long)total.live);
    int length = snprintf(
        line, sizeof line,
        "{\"program\":\"%s\",\"operations\":%llu,\"checksum\":%llu,\"peak_bytes\":%lld,\"live_bytes\":%lld,"
        "\"rss_live\":%llu,\"rss_drained\":%llu,\"peak_rss\":%llu%s}\n",
        program, (unsigned long long)total.operations, (unsigned long long)(total.checksum & 0xffffffffu),
        (long long)total.peak, (long long)total.live_at_end, (unsigned long long)total.rss_at_end,
        (unsigned long long)drained, (unsigned long long)peak, more);
    CHECK(length > 0 && (size_t)length < sizeof line, "the line is too long");
    CHECK(write(STDOUT_FILENO, line, (size_t)length) == (ssize_t)length, "write: %s", strerror(errno));
    return 0;
}

#endif
