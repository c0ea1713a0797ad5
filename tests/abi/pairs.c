/* So many pairs of malloc and free: what one of them takes is the difference of two runs. */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    void *volatile object;
    if (argc != 3) {
        fprintf(stderr, "usage: pairs COUNT BYTES\n");
        return 2;
    }
    size_t bytes = (size_t)strtoull(argv[2], NULL, 10);
    for (long count = strtol(argv[1], NULL, 10); count > 0; count--) {
        object = malloc(bytes);
        free(object);
    }
    return 0;
}
