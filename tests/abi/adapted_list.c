/* A program without an event loop, whose list an adapter makes durable: it reads a line, waiting, and answers the sum of all numbers that it was given.
 *   adapted_list           answers by write
 *   adapted_list flush     answers by a stream, which it flushes, and reads from one
 *   adapted_list --version */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct node {
    struct node *next;
    long value;
};

/* Leads nowhere at the start. */
struct node *head;

static volatile long starts;

/* Long enough for a jump in the place of its first instructions. */
__attribute__((noinline)) void started(void) {
    starts = starts * 3 + 1;
    starts = starts * 5 + 1;
}

__attribute__((noinline)) int add(long value) {
    struct node *node = malloc(sizeof *node);
    if (!node) return 1;
    node->value = value;
    node->next = head;
    head = node;
    return 0;
}

static long sum(void) {
    long all = 0;
    for (struct node *node = head; node; node = node->next) all += node->value;
    return all;
}

static int read_line(char *into, size_t room, int streams) {
    if (streams) {
        if (!fgets(into, (int)room, stdin)) return 0;
        into[strcspn(into, "\n")] = 0;
        return 1;
    }
    for (size_t len = 0; len + 1 < room; len++) {
        if (read(0, into + len, 1) != 1) return 0;
        if (into[len] == '\n') {
            into[len] = 0;
            return 1;
        }
    }
    return 0;
}

int main(int count, char **words) {
    char line[64];
    int flushes = count > 1 && strcmp(words[1], "flush") == 0;
    if (count > 1 && strcmp(words[1], "--version") == 0) {
        puts("adapted_list 1.0");
        return 0;
    }
    started();
    while (read_line(line, sizeof line, flushes)) {
        if (strncmp(line, "add ", 4) == 0) {
            if (add(atol(line + 4))) return 1;
            /* No answer: nothing is sent between this and the next wait. */
            continue;
        }
        if (flushes) {
            printf("%ld\n", sum());
            fflush(stdout);
        } else {
            int len = snprintf(line, sizeof line, "%ld\n", sum());
            if (write(1, line, len) != len) return 1;
        }
    }
    return 0;
}
