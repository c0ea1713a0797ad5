/* Has had a large heap and does nothing any more. Ends with 0 once the library's thread has slept for three
   seconds on end, or has left. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>

#include "abi.h"

#define OBJECTS 300000

static void *objects[OBJECTS];

/* Reads a file of the thread; without allocation, which would be work for it. */
static void read_file(const char *thread, const char *name, char *text, size_t size) {
    char path[300];
    snprintf(path, sizeof path, "/proc/self/task/%s/%s", thread, name);
    int file = open(path, O_RDONLY);
    ssize_t length = file < 0 ? 0 : read(file, text, size - 1);
    text[length > 0 ? length : 0] = 0;
    close(file);
}

/* -1: there is no such thread any more. */
static long switches(const char *thread) {
    char text[4096];
    read_file(thread, "status", text, sizeof text);
    if (text[0] == 0) return -1;
    char *line = strstr(text, "\nvoluntary_ctxt_switches:");
    CHECK(line, "no such line: %s", text);
    return strtol(strchr(line, ':') + 1, NULL, 10);
}

int main(void) {
    char thread[64] = "";
    for (int i = 0; i < OBJECTS; i++) {
        objects[i] = malloc(1000);
        CHECK(objects[i], "malloc");
        memset(objects[i], 1, 1000);
    }
    DIR *directory = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        char name[64];
        read_file(entry->d_name, "comm", name, sizeof name);
        if (strcmp(name, "spandrel\n") == 0) {
            snprintf(thread, sizeof thread, "%.60s", entry->d_name);
        }
    }
    closedir(directory);
    CHECK(thread[0], "there is no such thread");
    for (int i = 0; i < OBJECTS; i++) {
        free(objects[i]);
    }
    for (int i = 0; i < 20; i++) {
        long before = switches(thread);
        sleep(3);
        if (switches(thread) == before) {
            return 0;
        }
    }
    CHECK(0, "it never sleeps");
}
