/* Stores of programs that are compiled in several ways: the compiler names them, or the translator does, or the kernel their pages, or the program. */
#ifndef SPANDREL_TESTS_DURABLE_NAMED_H
#define SPANDREL_TESTS_DURABLE_NAMED_H

#include "durable.h"

#if defined HOOKED || defined TRANSLATED || defined PAGES
#define WROTE(address, bytes) ((void)0)
#else
#define WROTE(address, bytes) CHECK(spandrel_durable_wrote(state, address, bytes) == 0)
#endif

/* The options of such a program. */
static inline spandrel_durable_options named_options(void) {
    spandrel_durable_options options = durable_options();
#if defined TRANSLATED
    options.stores = SPANDREL_DURABLE_STORES_TRANSLATED;
#elif defined PAGES
    options.stores = SPANDREL_DURABLE_STORES_PAGES;
#endif
    return options;
}

#define SET(place, value)               \
    do {                                \
        (place) = (value);              \
        WROTE(&(place), sizeof(place)); \
    } while (0)

#endif
