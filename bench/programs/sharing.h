/* What the programs about false sharing have in common: objects that are written to again and again. */
#ifndef SHARING_H
#define SHARING_H

#include "program.h"

static uint64_t threads = 2, rounds = 1000, size = 8, writes = 200000, seed = 1;

/* Allocates, writes and frees objects, one at a time; closes the account. */
static inline void scribble(struct ledger *ledger, uint64_t number) {
    uint64_t random = mix(seed + number), sum = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        struct object object = take_object(ledger, (uint32_t)size, (uint32_t)next_random(&random));
        volatile unsigned char *bytes = object.at;
        unsigned char before = bytes[0];
        for (uint64_t i = 0; i < writes; i++)
            for (uint64_t at = 0; at < size; at++) bytes[at] = (unsigned char)(bytes[at] + 1);
        CHECK(bytes[0] == (unsigned char)(before + writes), "somebody else wrote here");
        sum += bytes[0];
        mark(object.at, object.size, object.tag);
        give_object(ledger, object);
    }
    close_ledger(ledger, sum);
}

static inline void parse_sharing(int argc, char **argv, const char *about) {
    struct argument list[] = {
        {"threads", &threads, 1, THREADS_MAX, "threads"},
        {"rounds", &rounds, 1, UINT32_MAX, "objects of each thread"},
        {"size", &size, 1, 1 << 20, "size of an object"},
        {"writes", &writes, 1, UINT32_MAX, "writes of each byte of an object"},
        {"seed", &seed, 0, UINT64_MAX, "of the random numbers"},
    };
    PARSE(argc, argv, about, list);
}

#endif
