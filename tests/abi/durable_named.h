/* Stores of programs that are compiled in several ways: the compiler names them, or the translator does, or the program. */
#ifndef SPANDREL_TESTS_DURABLE_NAMED_H
#define SPANDREL_TESTS_DURABLE_NAMED_H

#include "durable.h"

#if defined HOOKED || defined TRANSLATED
#define WROTE(address, bytes) ((void)0)
#else
#define WROTE(address, bytes) CHECK(spandrel_durable_wrote(state, address, bytes) == 0)
#endif

#define SET(place, value)               \
    do {                                \
        (place) = (value);              \
        WROTE(&(place), sizeof(place)); \
    } while (0)

#endif
