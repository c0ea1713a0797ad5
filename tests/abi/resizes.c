/* Two functions that resize objects: one many small ones, one a few that do not stay where they are. */
#include "abi.h"

enum { SMALL = 200, STEPS = 160, LARGE = 40 };

void grow_many(void) {
    static void *objects[SMALL];
    for (int step = 1; step <= STEPS; step++) {
        for (int i = 0; i < SMALL; i++) {
            objects[i] = realloc(objects[i], (size_t)step * 24);
            CHECK(objects[i], "realloc");
        }
    }
    for (int i = 0; i < SMALL; i++) free(objects[i]);
}

void grow_large(void) {
    for (int i = 0; i < LARGE; i++) {
        char *object = malloc(40 * KIB);
        memset(object, 1, 40 * KIB);
        void *behind = malloc(40 * KIB);
        object = realloc(object, 100 * KIB);
        CHECK(object && object[40 * KIB - 1] == 1, "realloc");
        free(object);
        free(behind);
    }
}

int main(void) {
    grow_many();
    grow_large();
    return 0;
}
