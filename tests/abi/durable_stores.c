/* Kinds of stores, compiled with hooks: each is made in a place of its own by a command, and looked for after the state was opened again from its files.
 * What was not captured is not there. Prints what was missed; fails if that is a kind which has to be captured.
 *   durable_stores DIRECTORY */
#include "durable.h"

#include <emmintrin.h>
#include <fcntl.h>
#include <stdatomic.h>

enum { PLACE = 4096 };

struct small {
    uint64_t words[3];
};

struct large {
    char bytes[1000];
    struct small small;
};

struct mixed {
    char byte;
    uint32_t four;
    uint16_t two;
    unsigned low : 3, high : 9;
    double real;
    void *pointer;
} __attribute__((packed));

struct atoms {
    _Atomic uint8_t one;
    _Atomic uint16_t two;
    _Atomic uint32_t four;
    _Atomic uint64_t eight;
    _Atomic(void *) pointer;
};

/* Not constants to the compiler. */
static volatile size_t seven = 7;
static struct large some_large;

static void widths(char *at) {
    *at = 1;
    *(uint16_t *)(at + 64) = 2;
    *(uint32_t *)(at + 128) = 3;
    *(uint64_t *)(at + 192) = 4;
    *(__int128 *)(at + 256) = (__int128)5 << 70;
    *(float *)(at + 320) = 1.5f;
    *(double *)(at + 384) = 2.5;
}

static void long_doubles(char *at) {
    *(long double *)at = 3.5L;
}

static void unaligned(char *at) {
    struct mixed *mixed = (struct mixed *)(at + 1);
    mixed->four = 0x01020304;
    mixed->two = 0x0506;
    mixed->real = 6.25;
    mixed->pointer = at;
}

static void bit_fields(char *at) {
    struct mixed *mixed = (struct mixed *)at;
    mixed->low = 5;
    mixed->high = 300;
}

static void volatiles(char *at) {
    *(volatile uint8_t *)at = 9;
    *(volatile uint64_t *)(at + 64) = 10;
}

static void compound(char *at) {
    *(uint64_t *)at += 11;
    *(uint32_t *)(at + 64) |= 0x1000;
    ++*(uint8_t *)(at + 128);
}

static void arrays(char *at) {
    uint32_t *numbers = (uint32_t *)at;
    for (uint32_t i = 0; i < PLACE / 4; i++) numbers[i] = i * i + 1;
}

static void filled_by_a_loop(char *at) {
    for (size_t i = 0; i < PLACE; i++) at[i] = 0x11;
}

static void copied_by_a_loop(char *at) {
    for (size_t i = 0; i < sizeof some_large; i++) at[i] = ((char *)&some_large)[i];
}

static void structures(char *at) {
    *(struct small *)at = some_large.small;
    *(struct large *)(at + 1024) = some_large;
    *(struct small *)(at + 3072) = (struct small){{1, 2, seven}};
}

static struct large made_large(void) {
    struct large made = some_large;
    made.bytes[seven] = 99;
    return made;
}

static void returned_structures(char *at) {
    *(struct large *)at = made_large();
}

static void copies(char *at) {
    memcpy(at, &some_large, seven);
    memcpy(at + 64, &some_large, 8);
    memcpy(at + 128, &some_large, sizeof some_large);
    memmove(at + 2048, at + 128, 100);
    memset(at + 3072, 0x22, seven);
    memset(at + 3200, 0x33, 16);
}

static void builtin_copies(char *at) {
    __builtin_memcpy(at, &some_large, 8);
    __builtin_memcpy(at + 64, &some_large, 100);
    __builtin_memset(at + 256, 0x44, 24);
    __builtin_memset(at + 512, 0x44, 500);
}

struct named {
    char name[32];
    uint64_t number;
};

/* Not known to the compiler. */
static const char *volatile words = "some words";

static void strings(char *at) {
    strcpy(at, "a text");
    strncpy(at + 64, "another text", 30);
    strcat(at, ", and more of it");
    strncat(at + 64, " and a third", 5);
    stpcpy(at + 128, "the end");
    struct named *named = (struct named *)(at + 256);
    strcpy(named->name, words);
    strcat(named[1].name, words);
    stpcpy(named[2].name, words);
    strncpy(named[3].name, words, seven);
    strncat(named[4].name, words, seven);
}

static void atomics(char *at) {
    struct atoms *atoms = (struct atoms *)at;
    atomic_store(&atoms->one, 1);
    atomic_fetch_add(&atoms->two, 2);
    atomic_exchange(&atoms->four, 4);
    uint64_t expected = 0;
    CHECK(atomic_compare_exchange_strong(&atoms->eight, &expected, 8));
    atomic_store_explicit(&atoms->pointer, at, memory_order_release);
    __sync_fetch_and_or((uint32_t *)(at + 512), 0x50);
    __atomic_fetch_xor((uint16_t *)(at + 640), 0x60, __ATOMIC_RELAXED);
    CHECK(atomic_load(&atoms->eight) == 8 && atomic_load(&atoms->two) == 2);
    CHECK(!atomic_compare_exchange_strong(&atoms->eight, &expected, 9) && expected == 8);
}

static void vectors(char *at) {
    _mm_store_si128((__m128i *)at, _mm_set1_epi8(7));
    _mm_storeu_si128((__m128i *)(at + 65), _mm_set1_epi8(8));
}

static void streaming_stores(char *at) {
    _mm_stream_si128((__m128i *)at, _mm_set1_epi8(9));
}

static void assembly(char *at) {
    __asm__ volatile("movq $77, (%0)" : : "r"(at) : "memory");
}

static void formatted(char *at) {
    snprintf(at, 100, "%zu", seven);
}

static void system_calls(char *at) {
    int file = open("/proc/self/exe", O_RDONLY);
    CHECK(file >= 0 && read(file, at, 4) == 4 && close(file) == 0);
}

static int compare(const void *a, const void *b) {
    return *(const int *)b - *(const int *)a;
}

static void sorted(char *at) {
    /* Its values were stored by an earlier command. */
    qsort(at, 100, sizeof(int), compare);
}

static void named(char *at) {
    snprintf(at, 100, "%zu", seven);
}

/* gcc calls its hooks neither for what it makes of its own built-in functions nor for a result that a function stores in its place at once. clang has
 * hooks for sizes that are powers of two. */
#ifdef __clang__
enum { GCC = 0, CLANG = 1 };
#else
enum { GCC = 1, CLANG = 0 };
#endif

static const struct {
    const char *what;
    void (*make)(char *);
    int is_captured;
} kinds[] = {
    {"stores of 1 to 16 bytes", widths, 1},
    {"long double", long_doubles, GCC},
    {"members of packed structures", unaligned, 1},
    {"bit fields", bit_fields, 1},
    {"volatile stores", volatiles, 1},
    {"compound assignments", compound, 1},
    {"arrays", arrays, 1},
    {"fills by a loop", filled_by_a_loop, 1},
    {"copies by a loop", copied_by_a_loop, 1},
    {"assignments of structures", structures, 1},
    {"structures that functions return", returned_structures, CLANG},
    {"memcpy, memmove, memset", copies, 1},
    {"strcpy and its like", strings, 1},
    {"atomic operations", atomics, 1},
    {"vector stores", vectors, 1},
    {"a store that the program names", named, 1},
    {"__builtin_memcpy, __builtin_memset", builtin_copies, CLANG},
    {"streaming stores", streaming_stores, CLANG},
    {"assembly", assembly, 0},
    {"snprintf", formatted, 0},
    {"read", system_calls, 0},
    {"qsort", sorted, 0},
};

enum { KINDS = sizeof kinds / sizeof *kinds };

static char *places;

static int init(spandrel_durable *state, void *argument) {
    (void)argument;
    places = spandrel_durable_root(state, "places");
    if (places) return 0;
    places = spandrel_durable_aligned_alloc(state, PLACE, KINDS * PLACE);
    CHECK(places && spandrel_durable_memset(state, places, 0, KINDS * PLACE) == 0);
    for (int i = 0; i < KINDS; i++)
        for (int j = 0; kinds[i].make == sorted && j < 100; j++) ((int *)(places + i * PLACE))[j] = j;
    return spandrel_durable_set_root(state, "places", places);
}

static int run(spandrel_durable *state, void *argument) {
    int i = *(int *)argument;
    kinds[i].make(places + i * PLACE);
    if (kinds[i].make == named) CHECK(spandrel_durable_wrote(state, places + i * PLACE, 100) == 0);
    return 0;
}

/* Stores of hooked code outside of a command that writes are found. */
static int strays(spandrel_durable *state, void *argument) {
    (void)state;
    (void)argument;
    ++*(uint64_t *)places;
    return 0;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof some_large.bytes; i++) some_large.bytes[i] = (char)(i * 3 + 1);
    some_large.small = (struct small){{4, 5, 6}};
    spandrel_durable *db = spandrel_durable_open(arguments[1], NULL, init, NULL);
    CHECK(db);
    for (int i = 0; i < KINDS; i++) CHECK(spandrel_durable_write(db, run, &i) == 0);
    char *before = malloc(KINDS * PLACE);
    CHECK(before);
    memcpy(before, places, KINDS * PLACE);
    CHECK(spandrel_durable_close(db) == 0);
    db = spandrel_durable_open(arguments[1], NULL, init, NULL);
    CHECK(db);
    int failed = 0;
    for (int i = 0; i < KINDS; i++) {
        if (memcmp(before + i * PLACE, places + i * PLACE, PLACE) == 0) continue;
        printf("missed: %s\n", kinds[i].what);
        if (kinds[i].is_captured) failed = fprintf(stderr, "missed: %s\n", kinds[i].what);
    }
    CHECK(failed == 0);
    CHECK(spandrel_durable_read(db, strays, NULL) == 0);
    int first = 0;
    FAILS(EUCLEAN, spandrel_durable_write(db, run, &first) == -1);
    CHECK(spandrel_durable_close(db) == -1 && errno == EUCLEAN);
    db = spandrel_durable_open(arguments[1], NULL, init, NULL);
    CHECK(db && memcmp(before, places, PLACE) == 0);
    strays(db, NULL);
    FAILS(EUCLEAN, spandrel_durable_write(db, run, &first) == -1);
    free(before);
    return 0;
}
