/* A server that has asked for little itself, and has a child for each connection. Prints the page faults of a child that asks for 400 KiB in
 * small pieces. */
#include <sys/resource.h>
#include <sys/wait.h>

#include "abi.h"

enum { CHILDREN = 100, OBJECTS = 800 };

int main(void) {
    void *own[100];
    for (int i = 0; i < 100; i++) CHECK((own[i] = malloc(500)) != NULL, "malloc");
    for (int child = 0; child < CHILDREN; child++) {
        pid_t made = fork();
        CHECK(made >= 0, "fork");
        if (made == 0) {
            char *objects[OBJECTS];
            for (int i = 0; i < OBJECTS; i++) {
                objects[i] = malloc(400 + (size_t)i % 200);
                CHECK(objects[i] != NULL, "malloc");
                objects[i][0] = 1;
            }
            for (int i = 0; i < OBJECTS; i += 2) free(objects[i]);
            _exit(0);
        }
        int status;
        CHECK(waitpid(made, &status, 0) == made && status == 0, "a child: status %#x", status);
    }
    for (int i = 0; i < 100; i++) free(own[i]);
    struct rusage used;
    CHECK(getrusage(RUSAGE_CHILDREN, &used) == 0, "getrusage");
    printf("%ld\n", used.ru_minflt / CHILDREN);
    return 0;
}
