/* cache-scratch: passive false sharing.
 *
 * After the benchmark of the same name in E. Berger et al., "Hoard", ASPLOS 2000. Stresses: whether a
 * thread that frees an object which another thread allocated gets it back. The main thread allocates one
 * object for each thread, neighbours in memory; each thread frees its object, then allocates, writes and
 * frees objects of the same size. An allocator that serves them from what was freed there keeps threads on
 * one cache line.
 *
 * Units: size in bytes; rounds of each thread; writes of each byte per round. */
#include "program.h"

static uint64_t threads = 2, rounds = 1000, size = 8, writes = 200000, seed = 1;

struct job {
    struct object gift;
    uint64_t number;
};

static void *work(void *argument) {
    struct job *job = argument;
    uint64_t random = mix(seed + job->number);
    struct ledger ledger = {0, 0};
    uint64_t sum = 0;
    give_object(&ledger, job->gift);
    for (uint64_t round = 0; round < rounds; round++) {
        struct object object = take_object(&ledger, (uint32_t)size, (uint32_t)next_random(&random));
        volatile unsigned char *bytes = object.at;
        unsigned char before = bytes[0];
        for (uint64_t i = 0; i < writes; i++)
            for (uint64_t at = 0; at < size; at++) bytes[at] = (unsigned char)(bytes[at] + 1);
        CHECK(bytes[0] == (unsigned char)(before + writes), "somebody else wrote here");
        sum += bytes[0];
        mark(object.at, object.size, object.tag);
        give_object(&ledger, object);
    }
    close_ledger(&ledger, sum);
    return NULL;
}

int main(int argc, char **argv) {
    struct argument list[] = {
        {"threads", &threads, 1, THREADS_MAX, "threads"},
        {"rounds", &rounds, 1, UINT32_MAX, "objects of each thread"},
        {"size", &size, 1, 1 << 20, "size of an object"},
        {"writes", &writes, 1, UINT32_MAX, "writes of each byte of an object"},
        {"seed", &seed, 0, UINT64_MAX, "of the random numbers"},
    };
    PARSE(argc, argv, "cache-scratch: passive false sharing", list);
    struct job jobs[THREADS_MAX];
    struct ledger ledger = {0, 0};
    for (uint64_t i = 0; i < threads; i++) {
        jobs[i].gift = take_object(&ledger, (uint32_t)size, (uint32_t)(seed + i));
        jobs[i].number = i;
    }
    close_ledger(&ledger, 0);
    run_threads(threads, work, jobs, sizeof jobs[0]);
    before_drain();
    return finish("cache-scratch", "");
}
