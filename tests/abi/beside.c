/* A program of one thread that has freed much, and so has a thread beside it for some seconds, is a program of one thread in all that it can notice. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "abi.h"

/* More thread-local variables than most programs have. */
static __thread char variables[300000];
static void *objects[400000];
static volatile sig_atomic_t forks;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Without a request. */
static int threads(void) {
    char text[1024] = {0};
    int file = open("/proc/self/stat", O_RDONLY), count = 0;
    CHECK(file >= 0 && read(file, text, sizeof text - 1) > 0, "stat");
    close(file);
    CHECK(sscanf(strrchr(text, ')'), ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d", &count) == 1, "%s", text);
    return count;
}

static void use_and_free(size_t mebibytes) {
    size_t count = mebibytes * MIB / 400;
    CHECK(count <= sizeof objects / sizeof *objects, "too much");
    for (size_t i = 0; i < count; i++) {
        objects[i] = malloc(400);
        CHECK(objects[i] != NULL, "malloc");
        memset(objects[i], 1, 400);
    }
    for (size_t i = 0; i < count; i++) free(objects[i]);
}

/* Frees that much, and sees the thread. Modes without one have nothing to show. */
static bool has_thread(size_t mebibytes) {
    use_and_free(mebibytes);
    for (int look = 0; look < 100; look++) {
        if (threads() == 2) return true;
        usleep(1000);
    }
    return false;
}

/* A child with the thread does something; how it ended, and that it did so soon. */
static int ended(void (*child)(void), size_t mebibytes) {
    pid_t made = fork();
    CHECK(made >= 0, "fork");
    if (made == 0) {
        has_thread(mebibytes);
        child();
        _exit(0);
    }
    double begun = now();
    int status;
    while (waitpid(made, &status, WNOHANG) == 0) {
        if (now() - begun > 5) {
            kill(made, SIGKILL);
            CHECK(0, "a child has not ended");
        }
        usleep(1000);
    }
    return status;
}

static void end_thread(void) { syscall(SYS_exit, 7); }

static void filter(unsigned call, unsigned verdict) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, verdict),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "filter");
}

static void break_rule(void) {
    filter(SYS_getppid, SECCOMP_RET_KILL);
    getppid();
}

static void free_under_filter(void) {
    filter(SYS_clone, SECCOMP_RET_KILL_PROCESS);
    use_and_free(20);
    _exit(3);
}

static void unshare_at_once(void) {
    /* These the kernel gives to a process of one thread only. */
    for (int i = 0; i < 20; i++) {
        CHECK(unshare(CLONE_VM) == 0, "unshare, round %d", i);
        CHECK(syscall(SYS_unshare, CLONE_SIGHAND) == 0, "unshare by number, round %d", i);
        use_and_free(20);
    }
}

/* Of these the C library knows nothing. */
static void fork_by_number(void) {
    double begun = now();
    for (int i = 0; i < 100 && now() - begun < 4; i++) {
        use_and_free(20);
        long child = i % 2 ? syscall(SYS_fork) : syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        CHECK(child >= 0, "fork by number, round %d", i);
        if (child == 0) {
            alarm(3);
            use_and_free(20);
            _exit(0);
        }
        int status;
        CHECK(waitpid((pid_t)child, &status, 0) == child && status == 0, "round %d: status %#x", i, status);
    }
}

static void fork_in_handler(int number) {
    int saved = errno;
    pid_t child = fork();
    if (child == 0) _exit(0);
    int status;
    if (child > 0)
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    forks++;
    (void)number;
    errno = saved;
}

/* In the middle of requests, while memory is given back. */
static void fork_in_handlers(void) {
    signal(SIGALRM, fork_in_handler);
    struct itimerval each = {{0, 3000}, {0, 3000}};
    setitimer(ITIMER_REAL, &each, NULL);
    double begun = now();
    while (now() - begun < 2.5)
        for (size_t size = 16; size < 200 * KIB; size += size / 2) use_and_free(1), free(malloc(size));
    struct itimerval none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &none, NULL);
    CHECK(forks > 50, "%d forks", (int)forks);
}

static void unshare_in_handler(int number) {
    int saved = errno;
    unshare(0);
    forks++;
    (void)number;
    errno = saved;
}

static void unshare_in_handlers(void) {
    signal(SIGALRM, unshare_in_handler);
    struct itimerval each = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &each, NULL);
    double begun = now();
    while (now() - begun < 2) use_and_free(8);
    struct itimerval none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &none, NULL);
    CHECK(forks > 50, "%d handlers", (int)forks);
}

/* The lowest free descriptor is the one that is opened next, and what is closed stays closed. */
static void open_files(void) {
    double begun = now(), next = begun;
    while (now() - begun < 2.5) {
        close(0);
        int file = open("/dev/null", O_RDONLY);
        CHECK(file == 0, "descriptor %d instead of 0", file);
        if (now() > next) {
            next += 0.3;
            use_and_free(12);
        }
    }
}

int main(int argc, char **argv) {
    (void)argc;
    /* A program that stays root is another case. */
    if (geteuid() == 0 && getenv("KEEP_ROOT") == NULL) {
        /* A container may have a root without that right. */
        if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) return 0;
        execv("/proc/self/exe", argv);
        CHECK(0, "exec");
    }
    variables[5] = 1;
    int status;
    const size_t sizes[] = {20, 100};
    for (size_t i = 0; i < 2; i++) {
        status = ended(end_thread, sizes[i]);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7, "ended by the bare exit: status %#x", status);
        status = ended(break_rule, sizes[i]);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS, "ended by a filter: status %#x", status);
        status = ended(unshare_at_once, sizes[i]);
        CHECK(status == 0, "unshare: status %#x", status);
    }
    status = ended(free_under_filter, 20);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3, "a filter without threads: status %#x", status);
    status = ended(fork_by_number, 50);
    CHECK(status == 0, "forks by number: status %#x", status);
    status = ended(open_files, 50);
    CHECK(status == 0, "files: status %#x", status);
    status = ended(unshare_in_handlers, 50);
    CHECK(status == 0, "unshare in handlers: status %#x", status);
    status = ended(fork_in_handlers, 50);
    CHECK(status == 0, "forks in handlers: status %#x", status);
    /* It leaves, and does not come back for nothing. */
    if (has_thread(30)) {
        for (int tenth = 0; tenth < 200 && threads() > 1; tenth++) usleep(100000);
        CHECK(threads() == 1, "the thread has not left");
        for (int i = 0; i < 1000; i++) objects[i] = malloc(32 * KIB);
        CHECK(threads() == 1, "the thread is there for nothing");
        for (int i = 0; i < 1000; i++) free(objects[i]);
    } else {
        CHECK(!on_spandrel() || getenv("SPANDREL_MODE") == NULL || strcmp(getenv("SPANDREL_MODE"), "native") != 0, "no thread");
    }
    return 0;
}
