/* Signals as programs use them around an allocator: handlers that interrupt system calls of allocating threads,
 * that jump out of code that does not allocate, that run on an alternate stack, and that allocate when the
 * signal was raised at a known place. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

#include "abi.h"

static volatile sig_atomic_t ticks;
static void tick(int signal) {
    (void)signal;
    ticks++;
}

static void churn(uint64_t *seed, int count) {
    for (int i = 0; i < count; i++) {
        size_t size = random_size(seed, 1, i % 32 == 0 ? 3 * MIB : 8 * KIB);
        unsigned char *p = malloc(size);
        CHECK(p != NULL, "malloc(%zu)", size);
        fill_from(p, 0, size < 100 ? size : 100, size);
        p = realloc(p, size * 2);
        CHECK(p != NULL, "realloc(%zu)", size * 2);
        CHECK(first_difference(p, 0, size < 100 ? size : 100, size) == (size < 100 ? size : 100), "contents");
        free(p);
    }
}

static void *interrupted(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    churn(&seed, 20000);
    return NULL;
}

/* A timer of 300 microseconds, without SA_RESTART, hits threads inside system calls of the allocator. */
static void handlers_that_interrupt(void) {
    struct sigaction action = {.sa_handler = tick};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, interrupted, (void *)(i + 1)) == 0, "thread");
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    setitimer(ITIMER_REAL, &never, NULL);
    CHECK(ticks > 0, "no signal came");
}

static sigjmp_buf out;
static void jump(int signal) {
    (void)signal;
    siglongjmp(out, 1);
}

/* Out of a computation that does not allocate, with memory allocated before and used after. */
static void handlers_that_jump(void) {
    struct sigaction action = {.sa_handler = jump};
    sigaction(SIGALRM, &action, NULL);
    uint64_t seed = 5;
    for (int round = 0; round < 50; round++) {
        unsigned char *volatile held = malloc(100 * KIB);
        fill_from(held, 0, 100 * KIB, 1);
        struct itimerval soon = {{0, 0}, {0, 1000}};
        if (sigsetjmp(out, 1) == 0) {
            setitimer(ITIMER_REAL, &soon, NULL);
            for (volatile unsigned long spin = 0;; spin++) {}
        }
        CHECK_PATTERN(held, 100 * KIB, 1);
        free(held);
        churn(&seed, 50);
    }
}

static jmp_buf back;
static void deep(int depth) {
    volatile char frame[200];
    frame[0] = (char)depth;
    free(malloc((size_t)depth + 1));
    if (depth > 0) deep(depth - 1);
    else longjmp(back, 1);
    (void)frame[0];
}

static void *volatile from_handler;
static void allocate(int signal) {
    (void)signal;
    free(from_handler);
    from_handler = malloc(5000);
    memset(from_handler, 1, 5000);
}

static void fault(int signal) {
    char on_stack;
    stack_t stack;
    CHECK(signal == SIGSEGV, "signal");
    sigaltstack(NULL, &stack);
    CHECK(stack.ss_flags & SS_ONSTACK, "not on the alternate stack: %p", (void *)&on_stack);
    siglongjmp(out, 1);
}

/* Each thread with an alternate stack from malloc; faults of the program's own are caught there. */
static void *on_alternate_stack(void *argument) {
    (void)argument;
    stack_t stack = {.ss_sp = malloc(64 * KIB), .ss_size = 64 * KIB};
    CHECK(sigaltstack(&stack, NULL) == 0, "sigaltstack");
    for (int i = 0; i < 20; i++) {
        if (sigsetjmp(out, 1) == 0) {
            int *volatile nowhere = NULL;
            *nowhere = 1;
        }
        free(malloc(100000));
    }
    stack_t off = {.ss_flags = SS_DISABLE};
    sigaltstack(&off, NULL);
    free(stack.ss_sp);
    return NULL;
}

int main(void) {
    handlers_that_interrupt();
    handlers_that_jump();
    for (int i = 0; i < 100; i++)
        if (setjmp(back) == 0) deep(100);
    struct sigaction action = {.sa_handler = allocate};
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < 1000; i++) raise(SIGUSR1);
    free(from_handler);
    struct sigaction faults = {.sa_handler = fault, .sa_flags = SA_ONSTACK};
    sigaction(SIGSEGV, &faults, NULL);
    for (int i = 0; i < 10; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, on_alternate_stack, NULL) == 0, "thread");
        pthread_join(thread, NULL);
    }
    return 0;
}
