/* For a debugger: `counter` becomes 6 in `part` and 2 after it, `local` becomes 5 after some requests. */
#include "abi.h"

volatile long counter;

__attribute__((noinline)) static void part(void) {
    volatile long local = 0;
    for (int i = 0; i < 20; i++) {
        char *object = malloc((size_t)(100 + i));
        object[0] = 1;
        free(object);
    }
    local = 5;
    counter += local;
}

int main(void) {
    for (int i = 0; i < 3000; i++) CHECK(malloc(300), "malloc");
    counter = 1;
    part();
    counter = 2;
    puts("end");
}
