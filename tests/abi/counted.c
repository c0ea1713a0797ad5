/* A known number of requests, for the test of the statistics: 10,000 objects of 100 bytes and 50 of 300,000,
 * each of the latter grown twice; half of all are freed. */
#include "abi.h"

int main(void) {
    static void *small[10000], *large[50];
    for (int i = 0; i < 10000; i++) CHECK((small[i] = malloc(100)) != NULL, "malloc");
    for (int i = 0; i < 50; i++) {
        CHECK((large[i] = malloc(300000)) != NULL, "malloc");
        CHECK((large[i] = realloc(large[i], 700000)) != NULL, "realloc");
        CHECK((large[i] = realloc(large[i], 5000000)) != NULL, "realloc");
    }
    for (int i = 0; i < 10000; i += 2) free(small[i]);
    for (int i = 0; i < 50; i += 2) free(large[i]);
    return 0;
}
