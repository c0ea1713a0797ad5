/* Large objects that were used little and are gone leave few mappings behind: a process has 65,530 unless the administrator says otherwise. */
#include "abi.h"

/* More objects of this size than there are small slots: the rest have a large slot each. */
enum { COUNT = 34000, LEFT = 200 };
static char *objects[COUNT];

static void use_and_free(void) {
    for (size_t i = 0; i < COUNT; i++) {
        CHECK((objects[i] = malloc(3 * MIB)) != NULL, "object %zu", i);
        objects[i][0] = (char)i;
        objects[i][3 * MIB - 1] = (char)i;
    }
    for (size_t i = 0; i < COUNT; i++) {
        CHECK(objects[i][0] == (char)i && objects[i][3 * MIB - 1] == (char)i, "object %zu", i);
        free(objects[i]);
    }
}

int main(int argc, char **argv) {
    size_t before = count_mappings(), after = 0;
    for (int round = 0; round < 2; round++) {
        use_and_free();
        /* "idle": by themselves, while the program does nothing. */
        if (argc > 1 && strcmp(argv[1], "idle") == 0) {
            for (int tenth = 0; tenth < 200 && (after = count_mappings()) > before + LEFT; tenth++) usleep(100000);
        } else {
            malloc_trim(0);
            after = count_mappings();
        }
        if (on_spandrel()) CHECK(after <= before + LEFT, "round %d: %zu mappings before, %zu after", round, before, after);
    }
    return 0;
}
