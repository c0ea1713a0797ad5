/* cache-thrash: active false sharing.
 *
 * After the benchmark of the same name in E. Berger et al., "Hoard", ASPLOS 2000. Stresses: whether objects
 * of different threads lie in one cache line from the start. Each thread allocates a small object, writes
 * every byte of it many times, frees it, and begins again; where two threads' objects share a line, the
 * line travels between their processors.
 *
 * Units: size in bytes; rounds of each thread; writes of each byte per round. */
#include "sharing.h"

static void *work(void *argument) {
    struct ledger ledger = {0, 0};
    scribble(&ledger, *(uint64_t *)argument);
    return NULL;
}

int main(int argc, char **argv) {
    parse_sharing(argc, argv, "cache-thrash: active false sharing");
    run_numbered(threads, work);
    before_drain();
    return finish("cache-thrash", "");
}
