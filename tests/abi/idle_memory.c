/* A program that has freed its memory and does nothing gives it back within seconds, however little it was, and is a program of one thread. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "abi.h"

extern char __libc_single_threaded __attribute__((weak));

/* Empty pages that are not worth a thread's waking up, and the library's own. */
enum { KEPT = 16 * MIB };
/* In mode auto, also what jemalloc and mimalloc keep of objects that they were tried with: mimalloc gives pages back when their thread calls it again. */
enum { KEPT_BY_TRIED = 12 * MIB };
static void *objects[800000];
static volatile sig_atomic_t signals_seen;
static pid_t main_thread;

static void seen(int number) {
    (void)number;
    if (gettid() == main_thread) signals_seen++;
}

/* Without a request. */
static int threads(void) {
    char text[1024] = {0};
    int file = open("/proc/self/stat", O_RDONLY);
    CHECK(file >= 0 && read(file, text, sizeof text - 1) > 0, "stat");
    close(file);
    int count = 0;
    CHECK(sscanf(strrchr(text, ')'), ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d", &count) == 1, "%s", text);
    return count;
}

/* Of large ones a byte each. */
static void use_and_free(size_t count, size_t size) {
    for (size_t i = 0; i < count; i++) {
        objects[i] = malloc(size);
        CHECK(objects[i] != NULL, "malloc(%zu)", size);
        memset(objects[i], 1, count > 1000 && size > MIB ? 1 : size);
    }
    for (size_t i = 0; i < count; i++) free(objects[i]);
}

int main(int argc, char **argv) {
    /* "large": without small objects, in modes in which these are the C library's. */
    size_t first = argc > 1 && strcmp(argv[1], "large") == 0 ? 2 : 0;
    /* A program that stays root is another case. */
    if (geteuid() == 0 && getenv("KEEP_ROOT") == NULL) {
        /* A container may have a root without that right. */
        if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) return 0;
        execv("/proc/self/exe", argv);
        CHECK(0, "exec");
    }
    CHECK(on_spandrel() || getenv("LD_PRELOAD") == NULL, "the library was not loaded");
    main_thread = gettid();
    memset(objects, 1, sizeof objects);
    signal(SIGUSR1, seen);
    const char *mode = getenv("SPANDREL_MODE");
    size_t kept = mode != NULL && strcmp(mode, "auto") == 0 ? KEPT + KEPT_BY_TRIED : KEPT;
    size_t start = resident();
    const size_t shapes[][2] = {{800000, 64}, {50000, 1000}, {250, 200 * KIB}, {50, MIB}, {5, 10 * MIB}, {10000, 3 * MIB}, {800000, 2000}};
    /* The last, a gigabyte and a half, for what is kept of memory that has gone back. */
    size_t shapes_count = sizeof shapes / sizeof *shapes - (first > 0);
    for (size_t i = first; i < shapes_count; i++) {
        use_and_free(shapes[i][0], shapes[i][1]);
        size_t peak = resident(), after = peak;
        for (int tenth = 0; tenth < 80 && after > start + kept; tenth++) {
            usleep(100000);
            after = resident();
        }
        /* Other allocators keep their own time. */
        if (on_spandrel()) CHECK(after <= start + kept, "%zu x %zu: %zu MiB at the peak, %zu later", shapes[i][0], shapes[i][1], peak / MIB, after / MIB);
    }
    /* Signals are for the program's own thread, and forks meet no thread in the middle of something. */
    for (int turn = 0; turn < 200; turn++) {
        use_and_free(10000, 1000);
        kill(getpid(), SIGUSR1);
        CHECK(signals_seen == turn + 1, "%d of %d", (int)signals_seen, turn + 1);
        pid_t child = fork();
        CHECK(child >= 0, "fork");
        if (child == 0) {
            use_and_free(turn % 4 == 0 ? 10000 : 10, 1000);
            _exit(0);
        }
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "%d: status %x", turn, status);
    }
    if (&__libc_single_threaded) CHECK(__libc_single_threaded, "the C library counts another thread");
    int count = threads();
    for (int tenth = 0; tenth < 200 && count > 1; tenth++) {
        usleep(100000);
        count = threads();
    }
    CHECK(count == 1, "%d threads", count);
    /* Whatever a thread of its own does then. */
    use_and_free(10000, 1000);
    pthread_exit(NULL);
}
