/* Durable variables of a section, whose order is the linker's: -DTURNED turns it round. -DIN_ONE has them in one structure.
 * Prints what they are after one more command. */
#include "abi.h"
#include <mangosteen.h>

#if defined IN_ONE
SPANDREL_DURABLE struct {
    unsigned long ones, thousands;
} both;
#define ones both.ones
#define thousands both.thousands
#elif defined TURNED
SPANDREL_DURABLE unsigned long thousands;
SPANDREL_DURABLE unsigned long ones;
#else
SPANDREL_DURABLE unsigned long ones;
SPANDREL_DURABLE unsigned long thousands;
#endif
#ifdef ONE_MORE
int of_the_process;
#endif

static bool is_read_only(void *client) {
    return *(bool *)client;
}

static void process(void *client) {
    (void)client;
    ones += 1;
    thousands += 1000;
}

int main(void) {
    bool reads = false;
    if (initMangosteen(NULL, NULL, is_read_only, process, NULL, NULL, MODE_LOCAL)) {
        printf("%d %s\n", errno, spandrel_durable_error_text());
        return 2;
    }
    CHECK(ClientCmd(&reads) == 0, "%s", spandrel_durable_error_text());
    printf("%lu %lu\n", ones, thousands);
    return 0;
}
