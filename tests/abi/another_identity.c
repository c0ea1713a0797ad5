/* A program of root's that has freed much, and so has a thread beside it for some seconds, takes another identity with all of its threads. */
#include <dirent.h>
#include <grp.h>
#include <link.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "abi.h"

enum { OTHER = 65534 };

static void *objects[200000];

static void use_and_free(size_t count) {
    for (size_t i = 0; i < count; i++) {
        objects[i] = malloc(400);
        CHECK(objects[i] != NULL, "malloc");
        memset(objects[i], 1, 400);
    }
    for (size_t i = 0; i < count; i++) free(objects[i]);
}

static size_t threads(void) {
    size_t count = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL, "tasks");
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) count += task->d_name[0] != '.';
    closedir(tasks);
    return count;
}

/* Whether there is a thread beside those that the program has made. */
static bool has_thread(size_t own) {
    use_and_free(50000);
    for (int look = 0; look < 200; look++) {
        if (threads() > own) return true;
        usleep(1000);
    }
    return false;
}

/* A line of each thread's status begins with this. */
static void check_threads(const char *line, const char *what) {
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL, "tasks");
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        char name[300], text[4096] = {0};
        if (task->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "/proc/self/task/%s/status", task->d_name);
        int file = open(name, O_RDONLY);
        if (file < 0) continue;
        ssize_t got = read(file, text, sizeof text - 1);
        close(file);
        /* It may have left since. */
        if (got > 0) CHECK(strstr(text, line) != NULL, "%s: a thread without '%s':\n%s", what, line, text);
    }
    closedir(tasks);
}

static const char USER[] = "\nUid:\t65534\t65534\t65534\t65534\n", GROUP[] = "\nGid:\t65534\t65534\t65534\t65534\n";

static void by_setuid(void) {
    CHECK(setgid(OTHER) == 0 && setuid(OTHER) == 0, "setuid");
    check_threads(USER, "setuid");
    check_threads(GROUP, "setgid");
    CHECK(setuid(0) == -1 && errno == EPERM, "root again");
}

static void by_setresuid(void) {
    CHECK(setresgid(OTHER, OTHER, OTHER) == 0 && setresuid(OTHER, OTHER, OTHER) == 0, "setresuid");
    check_threads(USER, "setresuid");
    check_threads(GROUP, "setresgid");
}

static void by_setreuid(void) {
    CHECK(setregid(OTHER, OTHER) == 0 && setreuid(OTHER, OTHER) == 0, "setreuid");
    check_threads(USER, "setreuid");
    check_threads(GROUP, "setregid");
}

/* For a time only. */
static void by_seteuid(void) {
    for (int i = 0; i < 5; i++) {
        CHECK(setegid(OTHER) == 0 && seteuid(OTHER) == 0, "seteuid");
        check_threads("\nUid:\t0\t65534\t0\t65534\n", "seteuid");
        check_threads("\nGid:\t0\t65534\t0\t65534\n", "setegid");
        use_and_free(50000);
        check_threads("\nUid:\t0\t65534\t0\t65534\n", "later");
        CHECK(seteuid(0) == 0 && setegid(0) == 0, "back");
        check_threads("\nUid:\t0\t0\t0\t0\n", "back");
        use_and_free(50000);
    }
}

static void by_number(void) {
    CHECK(syscall(SYS_setresgid, OTHER, OTHER, OTHER) == 0 && syscall(SYS_setresuid, OTHER, OTHER, OTHER) == 0, "by number");
    check_threads(USER, "by number");
}

static void groups(void) {
    gid_t some[] = {7, 8};
    CHECK(setgroups(2, some) == 0, "setgroups");
    check_threads("\nGroups:\t7 8 \n", "setgroups");
    /* Making the list allocates. */
    CHECK(initgroups("root", 9) == 0, "initgroups");
    check_threads("\nGroups:\t", "initgroups");
    CHECK(setgroups(0, NULL) == 0, "setgroups");
    check_threads("\nGroups:\t \n", "setgroups");
}

static void capabilities(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[2] = {{0}, {0}};
    CHECK(syscall(SYS_capset, &header, sets) == 0, "capset");
    check_threads("\nCapPrm:\t0000000000000000\n", "capset");
}

static void *other_thread(void *argument) {
    (void)argument;
    pause();
    return NULL;
}

/* The thread is made while there is one thread, and is there when there are two. */
static void with_threads(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, other_thread, NULL) == 0, "thread");
    use_and_free(50000);
    by_setresuid();
}

static void goes_back(size_t before) {
    size_t after = before + 60 * MIB;
    for (int tenth = 0; tenth < 120 && after > before + 12 * MIB; tenth++) {
        usleep(100000);
        after = resident();
    }
    CHECK(after <= before + 12 * MIB, "%zu MiB of what was freed are resident", (after - before) / MIB);
}

/* Memory that is freed later is returned to the kernel as well, ... */
static void then_free(void) {
    by_setuid();
    size_t before = resident();
    use_and_free(150000);
    goes_back(before);
}

/* ... and memory that was freed just before. */
static void free_then(void) {
    size_t before = resident();
    use_and_free(150000);
    by_setuid();
    goes_back(before);
}

static void *nothing(void *argument) { return argument; }

/* A program that had threads is one of one thread for the kernel. */
static void after_threads(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0, "thread");
    use_and_free(50000);
    by_number();
    use_and_free(50000);
    CHECK(syscall(SYS_unshare, CLONE_VM) == 0, "unshare");
}

static volatile sig_atomic_t handlers;

static void toggle(int number) {
    int saved = errno;
    (void)number;
    if (seteuid(OTHER) == 0 && seteuid(0) == 0) handlers++;
    errno = saved;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* In the middle of requests, and of the making of the thread. */
static void in_handlers(void) {
    signal(SIGALRM, toggle);
    struct itimerval each = {{0, 97}, {0, 97}}, none = {{0, 0}, {0, 0}};
    double begun = now();
    setitimer(ITIMER_REAL, &each, NULL);
    while (now() - begun < 1.5) use_and_free(20000);
    setitimer(ITIMER_REAL, &none, NULL);
    CHECK(handlers > 50, "%d handlers", (int)handlers);
    CHECK(now() - begun < 10, "%.1f s", now() - begun);
}

static volatile bool is_over;

static int look(struct dl_phdr_info *info, size_t size, void *data) {
    (void)info, (void)size, (void)data;
    return 0;
}

static void *look_at_files(void *argument) {
    while (!is_over) dl_iterate_phdr(look, argument);
    return NULL;
}

/* The child of a fork does not wait for what another thread of its parent has locked. */
static void in_children(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, look_at_files, NULL) == 0, "thread");
    for (int i = 0; i < 200; i++) {
        pid_t child = fork();
        CHECK(child >= 0, "fork");
        if (child == 0) {
            alarm(10);
            _exit(setgid(OTHER) == 0 && setuid(OTHER) == 0 ? 0 : 1);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "child %d: status %#x", i, status);
    }
    is_over = true;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

int main(void) {
    void (*const ways[])(void) = {by_setuid, by_setresuid, by_setreuid, by_seteuid, by_number, groups, capabilities, with_threads, then_free, free_then, after_threads, in_handlers, in_children};
    /* A container may have a root without that right. */
    gid_t none;
    if (geteuid() != 0 || setgroups(0, &none) != 0) return 0;
    bool is_expected = on_spandrel() && getenv("SPANDREL_MODE") != NULL && strcmp(getenv("SPANDREL_MODE"), "native") == 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        pid_t child = fork();
        CHECK(child >= 0, "fork");
        if (child == 0) {
            CHECK(has_thread(1) || !is_expected, "no thread");
            ways[i]();
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "way %zu: status %#x", i, status);
    }
    return 0;
}
