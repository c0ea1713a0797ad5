/* What is open and not used counts once the program limits its data segment, or locks its memory, in the middle of its life. */
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "abi.h"

enum { MOST = 40000 };
static char *objects[MOST];

/* Objects of a size and filled, as many as fit into these bytes; how many there were. */
static size_t fill(size_t size, size_t bytes) {
    size_t count = 0;
    while (count < MOST && count * size < bytes && (objects[count] = malloc(size)) != NULL) memset(objects[count++], 1, size);
    return count;
}

static void drop(size_t count) {
    while (count > 0) free(objects[--count]);
}

/* In a child, as limits stay. */
static void in_child(void (*work)(size_t), size_t size) {
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        work(size);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "size %zu: status %#x", size, status);
}

/* Three quarters of a limit that comes late can be had; they can be had again after all were free. */
static void limit_late(size_t size) {
    drop(fill(size, 20 * MIB));
    struct rlimit limit = {300 * MIB, 300 * MIB};
    CHECK(setrlimit(RLIMIT_DATA, &limit) == 0, "setrlimit");
    for (int round = 0; round < 2; round++) {
        size_t count = fill(size, 230 * MIB);
        CHECK(count * size >= 230 * MIB, "round %d: %zu objects of %zu B", round, count, size);
        drop(count);
    }
}

/* Resident memory of locked objects is little more than they are. */
static void lock_late(size_t size) {
    drop(fill(size, 20 * MIB));
    size_t count = fill(size, 5 * MIB);
    int locked = size % 32 == 0 ? mlockall(MCL_CURRENT | MCL_FUTURE) : (int)syscall(SYS_mlockall, MCL_CURRENT | MCL_FUTURE);
    if (locked != 0) return; /* It needs a privilege. */
    size_t at_once = resident();
    CHECK(at_once < 64 * MIB, "%zu MiB resident once memory is locked", at_once / MIB);
    drop(count);
    drop(fill(size, 20 * MIB));
    size_t then = resident();
    CHECK(then < 120 * MIB, "%zu MiB resident after more objects", then / MIB);
}

int main(void) {
    const size_t sizes[] = {10000, 150000, 600000, 1200000, 3000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        in_child(limit_late, sizes[i]);
        in_child(lock_late, sizes[i]);
        in_child(lock_late, sizes[i] + 16);
    }
    return 0;
}
