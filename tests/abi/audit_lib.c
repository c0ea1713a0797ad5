/* A library that looks on while others are loaded (LD_AUDIT). */
#include <link.h>

unsigned la_version(unsigned version) { return version; }
