/* cache-scratch: passive false sharing.
 *
 * After the benchmark of the same name in E. Berger et al., "Hoard", ASPLOS 2000. Stresses: whether a
 * thread that frees an object which another thread allocated gets it back. The main thread allocates one
 * object for each thread, neighbours in memory; each thread frees its object, then allocates, writes and
 * frees objects of the same size. An allocator that serves them from what was freed there keeps threads on
 * one cache line.
 *
 * Units: size in bytes; rounds of each thread; writes of each byte per round. */
#include "sharing.h"

struct job {
    struct object gift;
    uint64_t number;
};

static void *work(void *argument) {
    struct job *job = argument;
    struct ledger ledger = {0, 0};
    give_object(&ledger, job->gift);
    scribble(&ledger, job->number);
    return NULL;
}

int main(int argc, char **argv) {
    parse_sharing(argc, argv, "cache-scratch: passive false sharing");
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
