/* Frees most of a large heap and sleeps. Prints mebibytes that are resident before and after, and threads. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OBJECTS 262144
#define BYTES 1000

static void *objects[OBJECTS];

/* Without allocation, which would be an occasion to give memory back. */
static long resident(void) {
    char text[128];
    long total, pages;
    int file = open("/proc/self/statm", O_RDONLY);
    ssize_t length = read(file, text, sizeof text - 1);
    if (length <= 0) {
        exit(1);
    }
    text[length] = 0;
    close(file);
    return sscanf(text, "%ld %ld", &total, &pages) == 2 ? pages / 256 : -1;
}

static int threads(void) {
    int count = 0;
    DIR *directory = opendir("/proc/self/task");
    while (directory != NULL && readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count - 2;
}

int main(void) {
    for (int i = 0; i < OBJECTS; i++) {
        objects[i] = malloc(BYTES);
        memset(objects[i], i, BYTES);
    }
    long before = resident();
    /* Whole spans, but no whole huge page. */
    for (int i = 0; i < OBJECTS; i++) {
        if (i / 64 % 8 != 0) {
            free(objects[i]);
        }
    }
    sleep(10);
    long after = resident();
    printf("%ld %ld %d\n", before, after, threads());
    return 0;
}
