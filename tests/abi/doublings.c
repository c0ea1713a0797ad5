/* So often an object that doubles from one size to another: what one of them takes is the difference of two runs. */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: doublings COUNT FROM TO\n");
        return 2;
    }
    size_t from = (size_t)strtoull(argv[2], NULL, 10), to = (size_t)strtoull(argv[3], NULL, 10);
    for (long count = strtol(argv[1], NULL, 10); count > 0; count--) {
        void *object = malloc(from);
        for (size_t size = 2 * from; object != NULL && size <= to; size *= 2) {
            void *grown = realloc(object, size);
            if (grown == NULL) return 1;
            object = grown;
        }
        free(object);
    }
    return 0;
}
