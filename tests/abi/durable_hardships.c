// Translated commands where the process is short of something.
//   durable_hardships DIRECTORY signals|descriptors
#include "durable.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>

static char *kept;

static int init(spandrel_durable *db, void *argument) {
    (void)argument;
    kept = spandrel_durable_root(db, "kept");
    if (kept) return 0;
    kept = spandrel_durable_calloc(db, 1, 4096);
    return kept ? spandrel_durable_set_root(db, "kept", kept) : -1;
}

static uintptr_t main_stack;
static volatile sig_atomic_t on_another_stack;

// Takes two mebibytes of whichever stack it runs on.
static void handle(int signal) {
    (void)signal;
    volatile char frame[2 << 20];
    for (size_t at = 0; at < sizeof frame; at += 4096) frame[sizeof frame - 1 - at] = 1;
    uintptr_t here = (uintptr_t)frame;
    if (here > main_stack || main_stack - here > (64 << 20)) on_another_stack++;
}

// Each of the calls is a moment on the translator's own stack.
static int calls(spandrel_durable *db, void *argument) {
    (void)db;
    (void)argument;
    for (int i = 0; i < 20000; i++) kept[i % 4096] += (char)(syscall(SYS_getppid) > 0);
    return 0;
}

// A signal of the kind that does not wait for the end of a batch.
static void signals(spandrel_durable *db) {
    int here;
    main_stack = (uintptr_t)&here;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
    struct sigevent event;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGTRAP;
    timer_t timer;
    struct itimerspec each = {{0, 300000}, {0, 300000}};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &each, NULL) == 0);
    int rounds = 0;
    for (; on_another_stack < 20 && rounds < 5000; rounds++) CHECK(spandrel_durable_write(db, calls, NULL) == 0);
    CHECK(timer_delete(timer) == 0);
    printf("met %d\n", (int)on_another_stack);
    CHECK(on_another_stack >= 20);
}

// Code of the program, and of the C library, which lies far from it.
static int far_code(spandrel_durable *db, void *argument) {
    (void)db;
    (void)argument;
    CHECK(strlen(strcpy(kept, "a text")) == 6 && strtol("77", NULL, 10) == 77);
    return snprintf(kept + 10, 100, "%d of %s", 7, kept);
}

static void descriptors(spandrel_durable *db) {
    void *library = dlopen("libz.so.1", RTLD_NOW);
    CHECK(library && spandrel_durable_write(db, far_code, NULL) == 11);
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = 64;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while (open("/dev/null", O_RDONLY) >= 0) {
    }
    CHECK(errno == EMFILE);
    // All code is translated anew, into memory near the code that is there now.
    CHECK(dlclose(library) == 0 && !dlopen("libz.so.1", RTLD_NOW | RTLD_NOLOAD));
    CHECK(spandrel_durable_write(db, far_code, NULL) == 11);
    CHECK(strcmp(kept + 10, "7 of a text") == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 3 && spandrel_durable_fix_addresses() == 0);
    spandrel_durable_options options = durable_options();
    options.stores = SPANDREL_DURABLE_STORES_TRANSLATED;
    spandrel_durable *db = spandrel_durable_open(arguments[1], &options, init, NULL);
    CHECK(db);
    if (strcmp(arguments[2], "signals") == 0)
        signals(db);
    else
        descriptors(db);
    CHECK(spandrel_durable_close(db) == 0);
    return 0;
}
