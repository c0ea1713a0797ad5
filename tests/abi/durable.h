/* What the programs of durable states share. */
#ifndef SPANDREL_TESTS_DURABLE_H
#define SPANDREL_TESTS_DURABLE_H

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <spandrel_durable.h>

#define CHECK(condition)                                                                                        \
    do {                                                                                                        \
        if (!(condition)) {                                                                                     \
            int errno_ = errno;                                                                                 \
            fprintf(stderr, "%s:%d: failed: %s (errno %d, %s)\n", __FILE__, __LINE__, #condition, errno_,       \
                    spandrel_durable_error_text());                                                             \
            _exit(1);                                                                                           \
        }                                                                                                       \
    } while (0)

/* Checks that a call fails, with this errno. */
#define FAILS(number, condition)                                                                                \
    do {                                                                                                        \
        errno = 0;                                                                                              \
        CHECK((condition) && errno == (number));                                                                \
    } while (0)

static inline spandrel_durable_options durable_options(void) {
    spandrel_durable_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    return options;
}

static inline spandrel_durable_report durable_report(const spandrel_durable *db) {
    spandrel_durable_report report;
    memset(&report, 0, sizeof report);
    report.struct_size = sizeof report;
    CHECK(spandrel_durable_get_report(db, &report) == 0);
    return report;
}

/* Ends by a signal that no handler can catch. */
static inline void die(void) {
    kill(getpid(), SIGKILL);
    _exit(1);
}

#endif
