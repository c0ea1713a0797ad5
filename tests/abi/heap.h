/* What the programs of the recoverable heap share. */
#ifndef SPANDREL_TESTS_HEAP_H
#define SPANDREL_TESTS_HEAP_H

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <spandrel_heap.h>

#define CHECK(condition)                                                                                        \
    do {                                                                                                        \
        if (!(condition)) {                                                                                     \
            int errno_ = errno;                                                                                 \
            fprintf(stderr, "%s:%d: failed: %s (errno %d, %s)\n", __FILE__, __LINE__, #condition, errno_,       \
                    spandrel_heap_error_text());                                                                \
            _exit(1);                                                                                           \
        }                                                                                                       \
    } while (0)

/* Checks that a call fails, with this errno. */
#define FAILS(number, condition)                                                                                \
    do {                                                                                                        \
        errno = 0;                                                                                              \
        CHECK((condition) && errno == (number));                                                                \
    } while (0)

static inline spandrel_heap_options heap_options(void) {
    spandrel_heap_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    return options;
}

static inline spandrel_heap_collected heap_collected(void) {
    spandrel_heap_collected collected;
    memset(&collected, 0, sizeof collected);
    collected.struct_size = sizeof collected;
    return collected;
}

/* Ends by a signal that no handler can catch. */
static inline void die(void) {
    kill(getpid(), SIGKILL);
    _exit(1);
}

#endif
