/* cfrac: factoring by continued fractions.
 *
 * The method of M. Morrison and J. Brillhart, "A method of factoring and the factorization of F7",
 * Mathematics of Computation 29, 1975; as a test of allocators after D. Barrett's program in B. Zorn and D.
 * Grunwald's studies. Stresses: a flood of tiny objects (8 to 40 bytes) with short lives and reference
 * counts, one thread, a working set that fits into the first cache. The number is the product of two primes
 * that the seed decides; both must be found.
 *
 * Units: bits of the product; primes in the factor base; numbers one after the other. */
#include "number.h"

static uint64_t bits = 80, base_size = 120, count = 1, seed = 1;

/* ---- primes of 64 bits, without objects ---- */

static uint64_t power_modulo(uint64_t base, uint64_t exponent, uint64_t n) {
    unsigned __int128 result = 1, square = base % n;
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1) result = result * square % n;
        square = square * square % n;
    }
    return (uint64_t)result;
}

/* Miller and Rabin's test; with these bases it is exact below 2^64. */
static bool is_prime(uint64_t n) {
    static const uint64_t bases[] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
    if (n < 2) return false;
    for (size_t i = 0; i < sizeof bases / sizeof bases[0]; i++)
        if (n % bases[i] == 0) return n == bases[i];
    int twos = __builtin_ctzll(n - 1);
    for (size_t i = 0; i < sizeof bases / sizeof bases[0]; i++) {
        unsigned __int128 x = power_modulo(bases[i], (n - 1) >> twos, n);
        bool passes = x == 1 || x == n - 1;
        for (int square = 1; square < twos && !passes; square++) {
            x = x * x % n;
            passes = x == n - 1;
        }
        if (!passes) return false;
    }
    return true;
}

static uint64_t random_prime(uint64_t *random, uint64_t of_bits) {
    uint64_t top = 3ull << (of_bits - 2); /* two bits: the product has all of its bits */
    for (;;) {
        uint64_t candidate = top | (next_random(random) >> (64 - of_bits)) | 1;
        if (is_prime(candidate)) return candidate;
    }
}

/* ---- relations ---- */

struct relation {
    struct number *root;  /* A with A^2 = (-1)^n Q modulo N */
    uint8_t *exponents;   /* of -1 and each prime in (-1)^n Q */
    uint64_t *parity;     /* the exponents modulo 2 */
    uint64_t *combined;   /* which relations were combined */
};

struct sieve {
    struct number *n;
    uint32_t *primes;
    size_t words, combined_words, relations, wanted;
    struct relation *table;
};

static void choose_primes(struct sieve *sieve) {
    uint32_t found = 0;
    for (uint32_t p = 2; found < base_size; p++) {
        if (!is_prime(p)) continue;
        uint32_t rest;
        drop(divide_small(sieve->n, p, &rest));
        /* Only these can divide a Q: N is a square modulo p. */
        if (p == 2 || power_modulo(rest, (p - 1) / 2, p) == 1) sieve->primes[found++] = p;
    }
}

/* Keeps a relation if Q is a product of the chosen primes. */
static void try_relation(struct sieve *sieve, struct number *root, struct number *q, bool negative) {
    uint8_t exponents[1024] = {negative};
    struct number *left = keep(q);
    for (uint32_t i = 0; i < base_size && left->length > 0;) {
        uint32_t rest;
        struct number *quotient = divide_small(left, sieve->primes[i], &rest);
        if (rest == 0) {
            exponents[i + 1]++;
            set(&left, quotient);
        } else {
            drop(quotient);
            i++;
        }
    }
    if (left->length == 1 && left->digits[0] == 1) {
        struct relation *relation = &sieve->table[sieve->relations];
        relation->root = keep(root);
        relation->exponents = take_table(&numbers, base_size + 1, 1);
        relation->parity = take_table(&numbers, sieve->words, sizeof(uint64_t));
        relation->combined = take_table(&numbers, sieve->combined_words, sizeof(uint64_t));
        memcpy(relation->exponents, exponents, base_size + 1);
        for (uint64_t i = 0; i <= base_size; i++)
            if (exponents[i] % 2) relation->parity[i / 64] |= 1ull << (i % 64);
        relation->combined[sieve->relations / 64] |= 1ull << (sieve->relations % 64);
        sieve->relations++;
    }
    drop(left);
}

/* Expands the square root of N into a continued fraction until there are enough relations. */
static void collect(struct sieve *sieve) {
    struct number *g = square_root(sieve->n), *p = number_from(0), *q = number_from(1), *a = keep(g);
    struct number *before = number_from(1), *root = keep(g);
    for (bool negative = true; sieve->relations < sieve->wanted; negative = !negative) {
        struct number *next = multiply(a, q);
        set(&p, subtract(next, p));
        set(&next, multiply(p, p));
        set(&next, subtract(sieve->n, next));
        struct number *quotient, *rest;
        divide(next, q, &quotient, &rest);
        CHECK(rest->length == 0, "the continued fraction is not one");
        drop(rest);
        set(&q, quotient);
        CHECK(q->length != 1 || q->digits[0] != 1, "the period is too short: choose another seed");
        try_relation(sieve, root, q, negative);
        set(&next, add(g, p));
        divide(next, q, &quotient, NULL);
        set(&a, quotient);
        set(&next, multiply(a, root));
        set(&next, add(next, before));
        set(&next, modulo(next, sieve->n));
        set(&before, root);
        root = next;
    }
    drop(g), drop(p), drop(q), drop(a), drop(before), drop(root);
}

/* A divisor of N from the relations that one dependency combines, or NULL if it gives only 1 or N. */
static struct number *divisor(struct sieve *sieve, const uint64_t *combined) {
    struct number *x = number_from(1), *y = number_from(1);
    uint32_t *sums = take_table(&numbers, base_size + 1, sizeof *sums);
    for (size_t i = 0; i < sieve->relations; i++) {
        if (!(combined[i / 64] >> (i % 64) & 1)) continue;
        set(&x, multiply_modulo(x, sieve->table[i].root, sieve->n));
        for (uint64_t e = 0; e <= base_size; e++) sums[e] += sieve->table[i].exponents[e];
    }
    for (uint64_t e = 1; e <= base_size; e++) {
        CHECK(sums[e] % 2 == 0, "a dependency that is none");
        struct number *prime = number_from(sieve->primes[e - 1]);
        for (uint32_t times = 0; times < sums[e] / 2; times++) set(&y, multiply_modulo(y, prime, sieve->n));
        drop(prime);
    }
    give_table(&numbers, sums, base_size + 1, sizeof *sums);
    struct number *sum = add(x, y), *one = number_from(1), *found = common_divisor(sum, sieve->n);
    if (compare(found, one) == 0 || compare(found, sieve->n) == 0) {
        drop(found);
        found = NULL;
    }
    drop(sum), drop(one), drop(x), drop(y);
    return found;
}

/* Gaussian elimination modulo 2; every row that becomes zero is a dependency. */
static struct number *solve(struct sieve *sieve) {
    size_t done = 0;
    for (uint64_t column = 0; column <= base_size; column++) {
        uint64_t bit = 1ull << (column % 64);
        size_t pivot = done;
        while (pivot < sieve->relations && !(sieve->table[pivot].parity[column / 64] & bit)) pivot++;
        if (pivot == sieve->relations) continue;
        /* Only the rows change places; exponents and roots keep their numbers. */
        struct relation *to = &sieve->table[done], *from = &sieve->table[pivot];
        uint64_t *parity = to->parity, *combined = to->combined;
        to->parity = from->parity, to->combined = from->combined;
        from->parity = parity, from->combined = combined;
        for (size_t row = done + 1; row < sieve->relations; row++) {
            struct relation *relation = &sieve->table[row];
            if (!(relation->parity[column / 64] & bit)) continue;
            for (size_t w = 0; w < sieve->words; w++) relation->parity[w] ^= to->parity[w];
            for (size_t w = 0; w < sieve->combined_words; w++) relation->combined[w] ^= to->combined[w];
        }
        done++;
    }
    struct number *found = NULL;
    for (; done < sieve->relations && found == NULL; done++) found = divisor(sieve, sieve->table[done].combined);
    return found;
}

static void factor(uint64_t *random) {
    uint64_t one = random_prime(random, bits / 2), two = random_prime(random, bits - bits / 2);
    struct number *p = number_from(one), *q = number_from(two);
    struct sieve sieve = {.n = multiply(p, q), .wanted = base_size + 24, .words = base_size / 64 + 1};
    sieve.combined_words = sieve.wanted / 64 + 1;
    sieve.primes = take_table(&numbers, base_size, sizeof *sieve.primes);
    sieve.table = take_table(&numbers, sieve.wanted, sizeof *sieve.table);
    choose_primes(&sieve);
    collect(&sieve);
    struct number *found = solve(&sieve);
    CHECK(found != NULL, "no dependency gave a divisor");
    CHECK(compare(found, p) == 0 || compare(found, q) == 0, "the divisor found is neither prime");
    settle(&numbers);
    before_drain();
    drop(found);
    for (size_t i = 0; i < sieve.relations; i++) {
        drop(sieve.table[i].root);
        give_table(&numbers, sieve.table[i].exponents, base_size + 1, 1);
        give_table(&numbers, sieve.table[i].parity, sieve.words, sizeof(uint64_t));
        give_table(&numbers, sieve.table[i].combined, sieve.combined_words, sizeof(uint64_t));
    }
    give_table(&numbers, sieve.table, sieve.wanted, sizeof *sieve.table);
    give_table(&numbers, sieve.primes, base_size, sizeof *sieve.primes);
    drop(sieve.n), drop(p), drop(q);
    total.checksum += one ^ two;
}

int main(int argc, char **argv) {
    struct argument list[] = {
        {"bits", &bits, 32, 126, "bits of the number to factor"},
        {"base", &base_size, 8, 1000, "primes in the factor base"},
        {"count", &count, 1, 1000000, "numbers to factor"},
        {"seed", &seed, 0, UINT64_MAX, "of the random numbers"},
    };
    PARSE(argc, argv, "cfrac: factoring with many tiny numbers", list);
    uint64_t random = mix(seed);
    for (uint64_t i = 0; i < count; i++) factor(&random);
    close_ledger(&numbers, 0);
    return finish("cfrac", "");
}
