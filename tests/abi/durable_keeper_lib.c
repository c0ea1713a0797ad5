// A library that makes something for the whole process with its first use, and keeps it in a variable, or in one of the thread.
#include <stdlib.h>
#include <string.h>

char *keeper_cache;
static _Thread_local char *of_thread;

int keeper_use(int is_of_thread) {
    char **place = is_of_thread ? &of_thread : &keeper_cache;
    if (!*place) {
        *place = malloc(100);
        if (!*place) return -1;
        memset(*place, 'k', 100);
    }
    return (*place)[99];
}

void keeper_take(char *object) {
    keeper_cache = object;
}
