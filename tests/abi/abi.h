/* What the programs of this folder share. Each program tests one behaviour, prints what failed and exits
 * with 1; it exits with 0 when all is well. None of them knows which allocator it runs on. */
#ifndef SPANDREL_TESTS_ABI_H
#define SPANDREL_TESTS_ABI_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

#define CHECK(condition, ...)                                                                          \
    do {                                                                                               \
        if (!(condition)) {                                                                            \
            int saved_errno_ = errno;                                                                  \
            fprintf(stderr, "%s:%d: failed: %s (errno %d): ", __FILE__, __LINE__, #condition, saved_errno_); \
            fprintf(stderr, __VA_ARGS__);                                                              \
            fprintf(stderr, "\n");                                                                     \
            fflush(stderr);                                                                            \
            _exit(1);                                                                                  \
        }                                                                                              \
    } while (0)

/* Resident bytes, without a request. */
static inline size_t resident(void) {
    char text[128] = {0};
    long total = 0, pages = 0;
    int file = open("/proc/self/statm", O_RDONLY);
    CHECK(file >= 0 && read(file, text, sizeof text - 1) > 0, "statm");
    close(file);
    CHECK(sscanf(text, "%ld %ld", &total, &pages) == 2, "statm");
    return (size_t)pages * 4 * KIB;
}

/* A small, fast, seeded generator (splitmix64). */
static inline uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* Between low and high, both included, with every power of two about as likely. */
static inline size_t random_size(uint64_t *state, size_t low, size_t high) {
    int low_bits = 63 - __builtin_clzll((unsigned long long)low | 1);
    int high_bits = 63 - __builtin_clzll((unsigned long long)high | 1);
    int bits = low_bits + (int)(next_random(state) % (uint64_t)(high_bits - low_bits + 1));
    size_t size = ((size_t)1 << bits) + next_random(state) % ((size_t)1 << bits);
    return size < low ? low : size > high ? high : size;
}

/* The eight bytes that belong at an offset, a multiple of 8, of the object with this seed. */
static inline uint64_t pattern_word(uint64_t seed, size_t offset) {
    return seed * 0x9e3779b97f4a7c15ull + (uint64_t)(offset >> 3) * 0xd1342543de82ef95ull + 0x2545f4914f6cdd1dull;
}

static inline unsigned char pattern_byte(uint64_t seed, size_t offset) {
    return (unsigned char)(pattern_word(seed, offset) >> (8 * (offset & 7)));
}

static inline void fill_from(void *object, size_t from, size_t to, uint64_t seed) {
    unsigned char *bytes = (unsigned char *)object;
    size_t i = from;
    for (; i < to && (i & 7); i++) bytes[i] = pattern_byte(seed, i);
    for (; i + 8 <= to; i += 8) {
        uint64_t word = pattern_word(seed, i);
        __builtin_memcpy(bytes + i, &word, 8);
    }
    for (; i < to; i++) bytes[i] = pattern_byte(seed, i);
}

/* The first offset in [from, to) that does not hold its byte, or `to`. */
static inline size_t first_difference(const void *object, size_t from, size_t to, uint64_t seed) {
    const unsigned char *bytes = (const unsigned char *)object;
    size_t i = from;
    while (i < to) {
        if ((i & 7) == 0 && i + 8 <= to) {
            uint64_t word;
            __builtin_memcpy(&word, bytes + i, 8);
            if (word == pattern_word(seed, i)) {
                i += 8;
                continue;
            }
        }
        if (bytes[i] != pattern_byte(seed, i)) return i;
        i++;
    }
    return to;
}

#define CHECK_PATTERN(object, size, seed)                                                              \
    do {                                                                                               \
        size_t end_ = (size);                                                                          \
        size_t at_ = first_difference((object), 0, end_, (seed));                                      \
        CHECK(at_ == end_, "object %p of %zu bytes, seed %llu: wrong byte at offset %zu",              \
              (const void *)(object), end_, (unsigned long long)(seed), at_);                          \
    } while (0)

static inline int is_aligned(const void *object, size_t alignment) {
    return ((uintptr_t)object & (alignment - 1)) == 0;
}

/* True on Spandrel; lets a program ask for what the C library does not have. */
static inline int on_spandrel(void) { return dlsym(RTLD_DEFAULT, "spandrel_version") != NULL; }

/* A value that the compiler must assume anything of: sizes through it raise no warnings. */
static inline size_t opaque(size_t value) {
    __asm__ volatile("" : "+r"(value));
    return value;
}

/* Resident memory of this process in bytes. */
static inline size_t resident_bytes(void) {
    unsigned long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL, "statm");
    CHECK(fscanf(file, "%lu %lu", &total, &resident) == 2, "statm");
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static inline size_t count_mappings(void) {
    size_t lines = 0;
    char buffer[65536];
    FILE *file = fopen("/proc/self/maps", "r");
    CHECK(file != NULL, "maps");
    setvbuf(file, NULL, _IOFBF, sizeof buffer);
    for (int c; (c = getc_unlocked(file)) != EOF;) lines += c == '\n';
    fclose(file);
    return lines;
}

#endif
