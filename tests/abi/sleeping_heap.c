/* Frees most of a large heap and sleeps, or with an argument goes on with little. Prints mebibytes that are resident before and after, and threads. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
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

/* Some requests now and then, more than caches have, all of which are freed again. */
static void go_on(int seconds) {
    static void *few[2000];
    for (int turn = 0; turn < seconds * 50; turn++) {
        for (int i = 0; i < 2000; i++) {
            few[i] = malloc(200);
        }
        for (int i = 0; i < 2000; i++) {
            free(few[i]);
        }
        usleep(20000);
    }
}

int main(int argc, char **argv) {
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
    if (argc > 1) {
        if (strcmp(argv[1], "child") == 0 && fork() != 0) {
            int status;
            return wait(&status) > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        }
        go_on(10);
    } else {
        sleep(10);
    }
    long after = resident();
    printf("%ld %ld %d\n", before, after, threads());
    return 0;
}
