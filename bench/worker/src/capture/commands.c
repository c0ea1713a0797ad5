/* The commands in C, compiled twice: as they are, and with the compiler's hooks (-fsanitize=thread), which name each store. */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef HOOKED
#define NAME(name) spandrel_hooked_##name
void *spandrel_hooked_memcpy(void *to, const void *from, size_t bytes);
void *spandrel_hooked_memmove(void *to, const void *from, size_t bytes);
#define memcpy spandrel_hooked_memcpy
#define memmove spandrel_hooked_memmove
#else
#define NAME(name) spandrel_native_##name
#endif

/* A table of open addressing. A key of 0 is a free place. */
struct entry {
    uint64_t key, value[4];
};

void NAME(update)(struct entry *entries, uint64_t mask, uint64_t keys, const uint64_t *numbers, size_t count)
{
    for (size_t at = 0; at < count; at++) {
        uint64_t key = numbers[at] % keys + 1;
        /* Multiplicative hashing: the high bits of a product with 2^64 / phi. */
        uint64_t place = (key * UINT64_C(0x9e3779b97f4a7c15)) >> 32 & mask;
        while (entries[place].key != key && entries[place].key != 0)
            place = (place + 1) & mask;
        entries[place].key = key;
        entries[place].value[key % 4]++;
    }
}

/* A B-tree whose nodes have the number of keys that those of Rust's standard library have. */
enum { MOST = 11, HALF = MOST / 2 };

struct node {
    uint64_t keys[MOST], values[MOST];
    uint32_t count, is_leaf;
    struct node *children[]; /* MOST + 1, if it is no leaf */
};

static struct node *made(uint32_t is_leaf)
{
    size_t children = is_leaf ? 0 : MOST + 1;
    struct node *node = malloc(sizeof(struct node) + children * sizeof(struct node *));
    if (!node)
        abort();
    node->count = 0;
    node->is_leaf = is_leaf;
    return node;
}

/* Splits a full child: its middle key goes up. */
static void split(struct node *parent, uint32_t at)
{
    struct node *left = parent->children[at], *right = made(left->is_leaf);
    uint32_t moved = MOST - HALF - 1, behind = parent->count - at;
    memcpy(right->keys, left->keys + HALF + 1, moved * sizeof(uint64_t));
    memcpy(right->values, left->values + HALF + 1, moved * sizeof(uint64_t));
    if (!left->is_leaf)
        memcpy(right->children, left->children + HALF + 1, (moved + 1) * sizeof(struct node *));
    right->count = moved;
    left->count = HALF;
    memmove(parent->keys + at + 1, parent->keys + at, behind * sizeof(uint64_t));
    memmove(parent->values + at + 1, parent->values + at, behind * sizeof(uint64_t));
    memmove(parent->children + at + 2, parent->children + at + 1, behind * sizeof(struct node *));
    parent->keys[at] = left->keys[HALF];
    parent->values[at] = left->values[HALF];
    parent->children[at + 1] = right;
    parent->count++;
}

static void insert(struct node **root, uint64_t key, uint64_t value)
{
    if (!*root)
        *root = made(1);
    if ((*root)->count == MOST) {
        struct node *above = made(0);
        above->children[0] = *root;
        *root = above;
        split(above, 0);
    }
    struct node *node = *root;
    for (;;) {
        uint32_t at = 0;
        while (at < node->count && node->keys[at] < key)
            at++;
        if (at < node->count && node->keys[at] == key) {
            node->values[at] = value;
            return;
        }
        if (node->is_leaf) {
            memmove(node->keys + at + 1, node->keys + at, (node->count - at) * sizeof(uint64_t));
            memmove(node->values + at + 1, node->values + at, (node->count - at) * sizeof(uint64_t));
            node->keys[at] = key;
            node->values[at] = value;
            node->count++;
            return;
        }
        if (node->children[at]->count == MOST) {
            split(node, at);
            if (node->keys[at] == key) {
                node->values[at] = value;
                return;
            }
            at += node->keys[at] < key;
        }
        node = node->children[at];
    }
}

void NAME(insert)(struct node **root, const uint64_t *numbers, size_t count)
{
    for (size_t at = 0; at < count; at++)
        insert(root, numbers[at], numbers[at]);
}

void NAME(copy)(char *room, size_t room_bytes, size_t bytes, const char *from, const uint64_t *numbers, size_t count)
{
    for (size_t at = 0; at < count; at++) {
        size_t place = numbers[at] % (room_bytes / bytes) * bytes;
        memcpy(room + place, from + (numbers[at] >> 32) % 64 * 64, bytes);
    }
}
