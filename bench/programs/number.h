/* Natural numbers of any size for `cfrac`: immutable, counted by references, every result a new object. */
#ifndef NUMBER_H
#define NUMBER_H

#include "program.h"

/* Digits of 32 bits, the least significant first, no leading zeros; zero has no digits. */
struct number {
    uint32_t references, length;
    uint32_t digits[];
};

static struct ledger numbers;

static inline size_t number_bytes(uint32_t length) { return sizeof(struct number) + length * sizeof(uint32_t); }

static inline struct number *number_new(uint32_t length) {
    struct number *n = (struct number *)malloc(number_bytes(length));
    CHECK(n != NULL, "no memory for a number of %u digits", length);
    took(&numbers, number_bytes(length));
    n->references = 1;
    n->length = length;
    return n;
}

static inline struct number *keep(struct number *n) {
    n->references++;
    return n;
}

static inline void drop(struct number *n) {
    CHECK(n->references > 0 && n->references < 1u << 30, "a number with %u references", n->references);
    if (--n->references > 0) return;
    gave(&numbers, number_bytes(n->length));
    free(n);
}

/* Replaces what a variable holds. */
static inline void set(struct number **place, struct number *value) {
    drop(*place);
    *place = value;
}

/* A number without its leading zeros: a new object, as every result is one. */
static inline struct number *trimmed(struct number *n) {
    uint32_t length = n->length;
    while (length > 0 && n->digits[length - 1] == 0) length--;
    if (length == n->length) return n;
    struct number *shorter = number_new(length);
    memcpy(shorter->digits, n->digits, length * sizeof(uint32_t));
    drop(n);
    return shorter;
}

static inline struct number *number_from(uint64_t value) {
    struct number *n = number_new(2);
    n->digits[0] = (uint32_t)value;
    n->digits[1] = (uint32_t)(value >> 32);
    return trimmed(n);
}

static inline int compare(const struct number *a, const struct number *b) {
    if (a->length != b->length) return a->length < b->length ? -1 : 1;
    for (uint32_t i = a->length; i-- > 0;)
        if (a->digits[i] != b->digits[i]) return a->digits[i] < b->digits[i] ? -1 : 1;
    return 0;
}

static inline struct number *add(const struct number *a, const struct number *b) {
    if (a->length < b->length) return add(b, a);
    struct number *sum = number_new(a->length + 1);
    uint64_t carry = 0;
    for (uint32_t i = 0; i < a->length; i++) {
        carry += (uint64_t)a->digits[i] + (i < b->length ? b->digits[i] : 0);
        sum->digits[i] = (uint32_t)carry;
        carry >>= 32;
    }
    sum->digits[a->length] = (uint32_t)carry;
    return trimmed(sum);
}

/* a must not be less than b. */
static inline struct number *subtract(const struct number *a, const struct number *b) {
    struct number *rest = number_new(a->length);
    int64_t borrow = 0;
    for (uint32_t i = 0; i < a->length; i++) {
        borrow += (int64_t)a->digits[i] - (i < b->length ? b->digits[i] : 0);
        rest->digits[i] = (uint32_t)borrow;
        borrow >>= 32;
    }
    CHECK(borrow == 0, "a difference below zero");
    return trimmed(rest);
}

static inline struct number *multiply(const struct number *a, const struct number *b) {
    struct number *product = number_new(a->length + b->length);
    memset(product->digits, 0, product->length * sizeof(uint32_t));
    for (uint32_t i = 0; i < a->length; i++) {
        uint64_t carry = 0;
        for (uint32_t j = 0; j < b->length; j++) {
            carry += (uint64_t)a->digits[i] * b->digits[j] + product->digits[i + j];
            product->digits[i + j] = (uint32_t)carry;
            carry >>= 32;
        }
        product->digits[i + b->length] = (uint32_t)carry;
    }
    return trimmed(product);
}

static inline struct number *divide_small(const struct number *a, uint32_t by, uint32_t *rest) {
    struct number *quotient = number_new(a->length);
    uint64_t left = 0;
    for (uint32_t i = a->length; i-- > 0;) {
        left = left << 32 | a->digits[i];
        quotient->digits[i] = (uint32_t)(left / by);
        left %= by;
    }
    *rest = (uint32_t)left;
    return trimmed(quotient);
}

/* Long division (Knuth, The Art of Computer Programming, 4.3.1, algorithm D). Either result may be NULL. */
static inline void divide(const struct number *a, const struct number *b, struct number **quotient,
                          struct number **rest) {
    CHECK(b->length > 0, "a division by zero");
    struct number *q, *r;
    if (compare(a, b) < 0) {
        q = number_new(0);
        r = number_new(a->length);
        memcpy(r->digits, a->digits, a->length * sizeof(uint32_t));
    } else if (b->length == 1) {
        uint32_t left;
        q = divide_small(a, b->digits[0], &left);
        r = number_from(left);
    } else {
        uint32_t n = b->length, m = a->length - n;
        int shift = __builtin_clz(b->digits[n - 1]);
        struct number *u = number_new(a->length + 1), *v = number_new(n);
        q = number_new(m + 1);
        for (uint32_t i = n; i-- > 0;)
            v->digits[i] = (uint32_t)((((uint64_t)b->digits[i] << 32 | (i ? b->digits[i - 1] : 0)) << shift) >> 32);
        u->digits[a->length] = (uint32_t)((uint64_t)a->digits[a->length - 1] << shift >> 32);
        for (uint32_t i = a->length; i-- > 0;)
            u->digits[i] = (uint32_t)((((uint64_t)a->digits[i] << 32 | (i ? a->digits[i - 1] : 0)) << shift) >> 32);
        for (uint32_t j = m + 1; j-- > 0;) {
            uint64_t top = (uint64_t)u->digits[j + n] << 32 | u->digits[j + n - 1];
            uint64_t guess = top / v->digits[n - 1], left = top % v->digits[n - 1];
            while (guess >> 32 || guess * v->digits[n - 2] > (left << 32 | u->digits[j + n - 2])) {
                guess--;
                left += v->digits[n - 1];
                if (left >> 32) break;
            }
            int64_t borrow = 0;
            uint64_t carry = 0;
            for (uint32_t i = 0; i < n; i++) {
                carry += guess * v->digits[i];
                borrow += (int64_t)u->digits[i + j] - (int64_t)(uint32_t)carry;
                u->digits[i + j] = (uint32_t)borrow;
                borrow >>= 32;
                carry >>= 32;
            }
            borrow += (int64_t)u->digits[j + n] - (int64_t)carry;
            u->digits[j + n] = (uint32_t)borrow;
            if (borrow < 0) {
                guess--;
                carry = 0;
                for (uint32_t i = 0; i < n; i++) {
                    carry += (uint64_t)u->digits[i + j] + v->digits[i];
                    u->digits[i + j] = (uint32_t)carry;
                    carry >>= 32;
                }
                u->digits[j + n] += (uint32_t)carry;
            }
            q->digits[j] = (uint32_t)guess;
        }
        r = number_new(n);
        for (uint32_t i = 0; i < n; i++)
            r->digits[i] = (uint32_t)(((uint64_t)u->digits[i + 1] << 32 | u->digits[i]) >> shift);
        drop(u);
        drop(v);
        q = trimmed(q);
        r = trimmed(r);
    }
    if (quotient) *quotient = q;
    else drop(q);
    if (rest) *rest = r;
    else drop(r);
}

static inline struct number *modulo(const struct number *a, const struct number *n) {
    struct number *rest;
    divide(a, n, NULL, &rest);
    return rest;
}

static inline struct number *multiply_modulo(const struct number *a, const struct number *b, const struct number *n) {
    struct number *product = multiply(a, b);
    set(&product, modulo(product, n));
    return product;
}

static inline struct number *common_divisor(struct number *a, struct number *b) {
    keep(a);
    keep(b);
    while (b->length > 0) {
        struct number *rest = modulo(a, b);
        drop(a);
        a = b;
        b = rest;
    }
    drop(b);
    return a;
}

/* The largest number whose square is not more than n, by Newton's method from above. */
static inline struct number *square_root(struct number *n) {
    struct number *x = number_new(n->length / 2 + 1);
    memset(x->digits, 0xff, x->length * sizeof(uint32_t));
    for (;;) {
        struct number *next;
        uint32_t odd;
        divide(n, x, &next, NULL);
        set(&next, add(next, x));
        set(&next, divide_small(next, 2, &odd));
        if (compare(next, x) >= 0) {
            drop(next);
            return x;
        }
        set(&x, next);
    }
}

#endif
