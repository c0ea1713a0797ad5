/* espresso: two-level logic minimisation.
 *
 * The loop of R. Brayton, G. Hachtel, C. McMullen, A. Sangiovanni-Vincentelli, "Logic Minimization
 * Algorithms for VLSI Synthesis", 1984: expand, irredundant, reduce, until the cover gets no smaller; as a
 * test of allocators after D. Grunwald, B. Zorn, R. Henderson, "Improving the cache locality of memory
 * allocation", PLDI 1993. Stresses: tiny sets (8 bytes) and growing arrays of them, allocated and
 * freed by recursion, one thread, little memory.
 *
 * The functions are random: cubes of the on-set and of what does not matter. Every result is compared with
 * its function at every minterm.
 * Units: input variables; cubes of the on-set; functions one after the other. */
#include "cover.h"

static uint64_t inputs = 14, cubes = 400, functions = 2, seed = 1;

static struct cover random_cover(uint64_t *random, uint64_t count) {
    struct cover cover = {NULL, 0, 0};
    for (uint64_t i = 0; i < count; i++) {
        struct cube *cube = cube_universe();
        for (uint32_t v = 0; v < variables; v++) {
            uint32_t draw = below(random, 3); /* a third of the variables is open */
            if (draw < 2) set_literal(cube, v, draw + 1);
        }
        cover_add(&cover, cube);
    }
    return cover;
}

static bool holds(const struct cover *cover, const struct cube *minterm) {
    for (uint32_t i = 0; i < cover->count; i++)
        if (contains(cover->cubes[i], minterm)) return true;
    return false;
}

/* A copy of a cover without one of its cubes (or with all of them), together with another cover. */
static struct cover others(const struct cover *cover, uint32_t without, const struct cover *more) {
    struct cover result = {NULL, 0, 0};
    for (uint32_t i = 0; i < cover->count; i++)
        if (i != without) cover_add(&result, cube_copy(cover->cubes[i]));
    for (uint32_t i = 0; i < more->count; i++) cover_add(&result, cube_copy(more->cubes[i]));
    return result;
}

/* Makes each cube as large as the off-set allows, and drops those that it then contains. */
static void expand(struct cover *on, const struct cover *off) {
    for (uint32_t i = 0; i < on->count; i++) {
        struct cube *cube = on->cubes[i];
        for (uint32_t v = 0; v < variables; v++) {
            unsigned value = literal(cube, v);
            if (value == 3) continue;
            set_literal(cube, v, 3);
            for (uint32_t j = 0; j < off->count; j++) {
                if (are_disjoint(cube, off->cubes[j])) continue;
                set_literal(cube, v, value);
                break;
            }
        }
        for (uint32_t j = on->count; j-- > 0;) {
            if (j == i || !contains(cube, on->cubes[j])) continue;
            cube_free(cover_remove(on, j));
            if (i == on->count) i = j; /* it was the last and has moved */
        }
    }
}

/* The part of all other cubes inside one. */
static struct cover inside(const struct cover *on, uint32_t at, const struct cover *free_set) {
    struct cover rest = others(on, at, free_set), part = {NULL, 0, 0};
    cofactor(&rest, on->cubes[at], &part);
    cover_free(&rest);
    return part;
}

/* Drops cubes that the others cover. */
static void irredundant(struct cover *on, const struct cover *free_set) {
    for (uint32_t i = on->count; i-- > 0;) {
        struct cover part = inside(on, i, free_set);
        if (is_tautology(&part)) cube_free(cover_remove(on, i));
        cover_free(&part);
    }
}

/* Makes each cube as small as the others allow, so that it can grow another way. */
static void reduce(struct cover *on, const struct cover *free_set) {
    for (uint32_t i = 0; i < on->count; i++) {
        struct cover part = inside(on, i, free_set), missing = complement(&part);
        struct cube *hull = cube_new();
        memset(hull->words, 0, cube_bytes());
        for (uint32_t j = 0; j < missing.count; j++)
            for (uint32_t w = 0; w < cube_words; w++) hull->words[w] |= missing.cubes[j]->words[w];
        if (missing.count > 0)
            for (uint32_t w = 0; w < cube_words; w++) on->cubes[i]->words[w] &= hull->words[w];
        cube_free(hull);
        cover_free(&missing);
        cover_free(&part);
    }
}

static uint64_t cost(const struct cover *cover) {
    uint64_t literals = 0;
    for (uint32_t i = 0; i < cover->count; i++) literals += variables - open_variables(cover->cubes[i]);
    return (uint64_t)cover->count << 32 | literals;
}

/* Between the on-set and the on-set with all that does not matter. */
static void verify(const struct cover *result, const struct cover *on, const struct cover *free_set) {
    struct cube *minterm = cube_universe();
    for (uint64_t bits = 0; bits < 1ull << variables; bits++) {
        for (uint32_t v = 0; v < variables; v++) set_literal(minterm, v, 1u << (bits >> v & 1));
        bool is = holds(result, minterm), may_differ = holds(free_set, minterm);
        CHECK(may_differ || is == holds(on, minterm), "the result differs at minterm %llu", (unsigned long long)bits);
    }
    cube_free(minterm);
}

static void minimise(uint64_t *random) {
    struct cover on = random_cover(random, cubes), free_set = random_cover(random, cubes / 8 + 1);
    struct cover both = others(&on, UINT32_MAX, &free_set), off = complement(&both), none = {NULL, 0, 0};
    struct cover result = others(&on, UINT32_MAX, &none), best = {NULL, 0, 0};
    cover_free(&both);
    for (uint64_t before = UINT64_MAX;;) {
        expand(&result, &off);
        irredundant(&result, &free_set);
        uint64_t now = cost(&result);
        if (now >= before) break;
        before = now;
        cover_free(&best);
        best = others(&result, UINT32_MAX, &none);
        reduce(&result, &free_set);
    }
    verify(&best, &on, &free_set);
    total.checksum += cost(&best);
    settle(&sets);
    before_drain();
    cover_free(&on), cover_free(&free_set), cover_free(&off), cover_free(&result), cover_free(&best);
}

int main(int argc, char **argv) {
    struct argument list[] = {
        {"inputs", &inputs, 2, 20, "input variables"},
        {"cubes", &cubes, 1, 100000, "cubes of the on-set"},
        {"functions", &functions, 1, 1000000, "functions to minimise"},
        {"seed", &seed, 0, UINT64_MAX, "of the random numbers"},
    };
    PARSE(argc, argv, "espresso: two-level logic minimisation", list);
    variables = (uint32_t)inputs;
    cube_words = (variables + VARIABLES_PER_WORD - 1) / VARIABLES_PER_WORD;
    uint64_t random = mix(seed);
    for (uint64_t i = 0; i < functions; i++) minimise(&random);
    close_ledger(&sets, 0);
    return finish("espresso", "");
}
