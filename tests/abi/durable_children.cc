/* Commands that run other programs, and code of several libraries: what the C library maps and unmaps for a child lies between these.
 *   durable_children DIRECTORY ROUNDS   prints the number that the state has at the end */
#include <spandrel_durable.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

static int *number;

static int init(spandrel_durable *db, void *) {
    number = static_cast<int *>(spandrel_durable_root(db, "number"));
    if (number) return 0;
    number = static_cast<int *>(std::calloc(1, sizeof *number));
    return spandrel_durable_set_root(db, "number", number);
}

static int count(spandrel_durable *, void *) {
    std::ostringstream text;
    text << ++*number;
    return std::system("true") ? -1 : std::atoi(text.str().c_str());
}

int main(int, char **arguments) {
    if (spandrel_durable_fix_addresses() != 0) return 1;
    spandrel_durable_options options{};
    options.struct_size = sizeof options;
    options.stores = SPANDREL_DURABLE_STORES_TRANSLATED;
    spandrel_durable *db = spandrel_durable_open(arguments[1], &options, init, nullptr);
    int last = 0;
    for (int rounds = std::atoi(arguments[2]); db && rounds > 0; rounds--) {
        last = spandrel_durable_write(db, count, nullptr);
    }
    if (!db || last <= 0) {
        std::fprintf(stderr, "%s\n", spandrel_durable_error_text());
        return 1;
    }
    std::printf("%d\n", last);
    return spandrel_durable_close(db) != 0;
}
