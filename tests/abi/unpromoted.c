/* Large objects that must not get huge pages: pages that children of a fork share, and pages that were only read. Nor does a fault that a thread of the
   program serves wait for the library. */
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "abi.h"

enum { BYTES = 256 * MIB, PAGE = 4096, CHILDREN = 4, WATCHED_S = 5, FAULTED = 64 * MIB };

/* Proportional share of a process, in bytes. */
static size_t share(pid_t pid) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
    FILE *rollup = fopen(path, "r");
    size_t kib = 0;
    while (rollup != NULL && fgets(line, sizeof line, rollup)) sscanf(line, "Pss: %zu", &kib);
    if (rollup != NULL) fclose(rollup);
    return kib * KIB;
}

/* Children hold what their parent has filled, and fill some of their own. */
static void shared(void) {
    char *object = calloc(1, BYTES);
    CHECK(object != NULL, "calloc");
    memset(object, 1, BYTES);
    pid_t children[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0, "fork");
        if (children[i] > 0) continue;
        char *own = calloc(1, 16 * MIB);
        memset(own, 1, 16 * MIB);
        for (;;) {
            for (int turn = 0; turn < 20000; turn++) free(malloc(turn));
            usleep(50000);
        }
    }
    sleep(WATCHED_S);
    size_t all = share(getpid());
    for (int i = 0; i < CHILDREN; i++) all += share(children[i]);
    for (int i = 0; i < CHILDREN; i++) {
        kill(children[i], SIGKILL);
        waitpid(children[i], NULL, 0);
    }
    size_t expected = BYTES + CHILDREN * 16 * MIB;
    CHECK(all < expected * 5 / 4, "%zu MiB instead of %zu", all / MIB, expected / MIB);
    free(object);
}

static void read_only(void) {
    volatile char *object = calloc(1, BYTES);
    CHECK(object != NULL, "calloc");
    size_t before = resident();
    for (size_t at = 0; at < BYTES; at += PAGE) CHECK(object[at] == 0, "a byte at %zu", at);
    sleep(WATCHED_S);
    size_t now = resident(), grown = now > before ? now - before : 0;
    /* A new kind may have huge pages from the beginning: 32 MiB of them. */
    CHECK(grown < 48 * MIB, "%zu MiB of what was only read", grown / MIB);
    free((void *)object);
}

static int faults;
static char *faulted;

/* Serves faults, and uses the allocator for it. */
static void *serve(void *unused) {
    static char page[PAGE] __attribute__((aligned(PAGE)));
    struct uffd_msg message;
    while (read(faults, &message, sizeof message) == sizeof message) {
        void *work = realloc(malloc(4 * MIB), 9 * MIB);
        CHECK(work != NULL, "realloc");
        free(work);
        memset(page, 1, sizeof page);
        struct uffdio_copy copy = {.dst = message.arg.pagefault.address & ~(PAGE - 1ul), .src = (unsigned long)page, .len = PAGE};
        ioctl(faults, UFFDIO_COPY, &copy);
    }
    return unused;
}

static void served(void) {
    faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    if (faults < 0 || ioctl(faults, UFFDIO_API, &api) != 0) return;
    char *object = calloc(1, FAULTED + PAGE);
    faulted = object + (-(size_t)object & (PAGE - 1));
    struct uffdio_register range = {.range = {(unsigned long)faulted, FAULTED}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    CHECK(ioctl(faults, UFFDIO_REGISTER, &range) == 0, "register");
    madvise(faulted, FAULTED, MADV_DONTNEED);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, serve, NULL) == 0, "a thread");
    for (size_t at = 0; at < FAULTED; at += PAGE) {
        CHECK(faulted[at] == 1, "a byte at %zu", at);
        if (at % (2 * MIB) == 2 * MIB - PAGE) usleep(40000);
    }
}

int main(void) {
    alarm(100);
    shared();
    read_only();
    served();
    return 0;
}
