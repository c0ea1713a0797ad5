/* Cubes and covers for `espresso`, in the positional notation: two bits for each variable, 01 where it must be 0,
 * 10 where it must be 1, 11 where it does not matter; 00 is a contradiction. Every cube is an object of its own. */
#ifndef COVER_H
#define COVER_H

#include "program.h"

enum { VARIABLES_PER_WORD = 32 };

/* Variables of the function, and words of a cube. */
static uint32_t variables, cube_words;
static struct ledger sets;

struct cube {
    uint64_t words[1]; /* cube_words of them: one, for as many variables as can be verified */
};

struct cover {
    struct cube **cubes;
    uint32_t count, room;
};

static inline size_t cube_bytes(void) { return cube_words * sizeof(uint64_t); }

static inline struct cube *cube_new(void) {
    struct cube *cube = (struct cube *)malloc(cube_bytes());
    CHECK(cube != NULL, "no memory for a cube");
    took(&sets, cube_bytes());
    return cube;
}

static inline void cube_free(struct cube *cube) {
    gave(&sets, cube_bytes());
    free(cube);
}

static inline struct cube *cube_copy(const struct cube *from) {
    struct cube *cube = cube_new();
    memcpy(cube->words, from->words, cube_bytes());
    return cube;
}

/* The cube that every minterm is in. */
static inline struct cube *cube_universe(void) {
    struct cube *cube = cube_new();
    for (uint32_t w = 0; w < cube_words; w++) cube->words[w] = ~0ull;
    uint32_t rest = variables % VARIABLES_PER_WORD;
    if (rest) cube->words[cube_words - 1] = (1ull << 2 * rest) - 1;
    return cube;
}

static inline unsigned literal(const struct cube *cube, uint32_t variable) {
    return (unsigned)(cube->words[variable / VARIABLES_PER_WORD] >> 2 * (variable % VARIABLES_PER_WORD)) & 3;
}

static inline void set_literal(struct cube *cube, uint32_t variable, unsigned value) {
    uint64_t *word = &cube->words[variable / VARIABLES_PER_WORD];
    unsigned shift = 2 * (variable % VARIABLES_PER_WORD);
    *word = (*word & ~(3ull << shift)) | (uint64_t)value << shift;
}

static inline bool is_universe(const struct cube *cube) {
    for (uint32_t v = 0; v < variables; v++)
        if (literal(cube, v) != 3) return false;
    return true;
}

static inline bool contains(const struct cube *big, const struct cube *small) {
    for (uint32_t w = 0; w < cube_words; w++)
        if (small->words[w] & ~big->words[w]) return false;
    return true;
}

/* Whether two cubes have no minterm in common: some variable is contradictory in both together. */
static inline bool are_disjoint(const struct cube *a, const struct cube *b) {
    const uint64_t low = 0x5555555555555555ull;
    for (uint32_t w = 0; w < cube_words; w++) {
        uint64_t both = a->words[w] & b->words[w], present = (both | both >> 1) & low;
        uint32_t rest = variables - w * VARIABLES_PER_WORD;
        uint64_t all = rest >= VARIABLES_PER_WORD ? low : low & ((1ull << 2 * rest) - 1);
        if (present != all) return true;
    }
    return false;
}

/* Variables that a cube leaves open: its size, as a power of two. */
static inline uint32_t open_variables(const struct cube *cube) {
    uint32_t open = 0;
    for (uint32_t v = 0; v < variables; v++) open += literal(cube, v) == 3;
    return open;
}

static inline void cover_add(struct cover *cover, struct cube *cube) {
    if (cover->count == cover->room) {
        uint32_t room = cover->room ? cover->room * 2 : 4;
        cover->cubes = (struct cube **)realloc(cover->cubes, room * sizeof(struct cube *));
        CHECK(cover->cubes != NULL, "no memory for a cover of %u", room);
        gave(&sets, cover->room * sizeof(struct cube *));
        took(&sets, room * sizeof(struct cube *));
        cover->room = room;
    }
    cover->cubes[cover->count++] = cube;
}

static inline void cover_free(struct cover *cover) {
    for (uint32_t i = 0; i < cover->count; i++) cube_free(cover->cubes[i]);
    gave(&sets, cover->room * sizeof(struct cube *));
    free(cover->cubes);
    cover->cubes = NULL;
    cover->count = cover->room = 0;
}

/* The cube at a place leaves the cover; the last one takes its place. */
static inline struct cube *cover_remove(struct cover *cover, uint32_t at) {
    struct cube *cube = cover->cubes[at];
    cover->cubes[at] = cover->cubes[--cover->count];
    return cube;
}

/* Moves all cubes of one cover to another. */
static inline void cover_move(struct cover *to, struct cover *from) {
    for (uint32_t i = 0; i < from->count; i++) cover_add(to, from->cubes[i]);
    from->count = 0;
    cover_free(from);
}

/* The part of a cover inside a cube, seen from there: variables that the cube decides are open. */
static inline void cofactor(const struct cover *cover, const struct cube *by, struct cover *result) {
    for (uint32_t i = 0; i < cover->count; i++) {
        if (are_disjoint(cover->cubes[i], by)) continue;
        struct cube *cube = cube_copy(cover->cubes[i]);
        for (uint32_t v = 0; v < variables; v++)
            if (literal(by, v) != 3) set_literal(cube, v, 3);
        cover_add(result, cube);
    }
}

/* The variable that most cubes decide both ways; `variables` if there is none and the cover is unate. */
static inline uint32_t most_binate(const struct cover *cover) {
    uint32_t best = variables, best_count = 0;
    for (uint32_t v = 0; v < variables; v++) {
        uint32_t zeros = 0, ones = 0;
        for (uint32_t i = 0; i < cover->count; i++) {
            unsigned value = literal(cover->cubes[i], v);
            zeros += value == 1;
            ones += value == 2;
        }
        if (zeros > 0 && ones > 0 && zeros + ones > best_count) {
            best = v;
            best_count = zeros + ones;
        }
    }
    return best;
}

static inline bool has_universe(const struct cover *cover) {
    for (uint32_t i = 0; i < cover->count; i++)
        if (is_universe(cover->cubes[i])) return true;
    return false;
}

/* The cofactor by one literal. */
static inline struct cover half(const struct cover *cover, uint32_t variable, unsigned value) {
    struct cover result = {NULL, 0, 0};
    struct cube *by = cube_universe();
    set_literal(by, variable, value);
    cofactor(cover, by, &result);
    cube_free(by);
    return result;
}

/* Whether a cover holds every minterm. A unate one does only if one of its cubes does. */
static inline bool is_tautology(const struct cover *cover) {
    if (has_universe(cover)) return true;
    uint32_t variable = most_binate(cover);
    if (variable == variables) return false;
    for (unsigned value = 1; value <= 2; value++) {
        struct cover part = half(cover, variable, value);
        bool all = is_tautology(&part);
        cover_free(&part);
        if (!all) return false;
    }
    return true;
}

/* All minterms that a cover does not hold, by Shannon's expansion. */
static inline struct cover complement(const struct cover *cover) {
    struct cover result = {NULL, 0, 0};
    if (cover->count == 0) {
        cover_add(&result, cube_universe());
        return result;
    }
    if (has_universe(cover)) return result;
    if (cover->count == 1) { /* de Morgan */
        for (uint32_t v = 0; v < variables; v++) {
            unsigned value = literal(cover->cubes[0], v);
            if (value == 3) continue;
            struct cube *cube = cube_universe();
            set_literal(cube, v, 3 ^ value);
            cover_add(&result, cube);
        }
        return result;
    }
    uint32_t variable = most_binate(cover);
    for (uint32_t v = 0; variable == variables; v++)
        for (uint32_t i = 0; i < cover->count && variable == variables; i++)
            if (literal(cover->cubes[i], v) != 3) variable = v;
    struct cover parts[2];
    for (unsigned value = 1; value <= 2; value++) {
        struct cover part = half(cover, variable, value);
        parts[value - 1] = complement(&part);
        cover_free(&part);
    }
    /* What both halves have needs no literal. */
    for (uint32_t i = 0; i < parts[0].count; i++) {
        bool merged = false;
        for (uint32_t j = 0; j < parts[1].count && !merged; j++) {
            merged = memcmp(parts[0].cubes[i]->words, parts[1].cubes[j]->words, cube_bytes()) == 0;
            if (merged) cube_free(cover_remove(&parts[1], j));
        }
        if (!merged) set_literal(parts[0].cubes[i], variable, 1);
    }
    for (uint32_t j = 0; j < parts[1].count; j++) set_literal(parts[1].cubes[j], variable, 2);
    cover_move(&result, &parts[0]);
    cover_move(&result, &parts[1]);
    return result;
}

#endif
