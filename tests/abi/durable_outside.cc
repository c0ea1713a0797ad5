/* What another thread stores for a command, which the command waits for outside of its translation.
 *   durable_outside DIRECTORY 1|2   the way to find stores (SPANDREL_DURABLE_STORES_TRANSLATED, _VERIFIED): a refused command leaves nothing */
#include <cstdlib>
#include <thread>
#include <vector>

#include "durable.h"

static std::vector<int> *numbers;

static int init(spandrel_durable *state, void *) {
    numbers = new std::vector<int>();
    return spandrel_durable_set_root(state, "numbers", numbers);
}

static int add_to_all(void *) {
    std::thread([] {
        for (int &number : *numbers) number += 7;
    }).join();
    return 0;
}

static int change(spandrel_durable *, void *is_refused) {
    for (int number = 0; number < 3; number++) numbers->push_back(number);
    spandrel_durable_outside(add_to_all, nullptr);
    return is_refused ? -1 : 0;
}

static int sum(spandrel_durable *, void *) {
    unsigned sum = 0;
    for (int number : *numbers) sum = sum * 31 + static_cast<unsigned>(number);
    return static_cast<int>(sum & 0x7fffffff);
}

int main(int, char **arguments) {
    CHECK(spandrel_durable_fix_addresses() == 0);
    spandrel_durable_options options{};
    options.struct_size = sizeof options;
    options.stores = std::atoi(arguments[2]);
    spandrel_durable *state = spandrel_durable_open(arguments[1], &options, init, nullptr);
    CHECK(state);
    for (int round = 0; round < 20; round++) {
        CHECK(spandrel_durable_write(state, change, nullptr) == 0);
        int before = spandrel_durable_read(state, sum, nullptr);
        CHECK(spandrel_durable_write(state, change, &round) == -1);
        CHECK(spandrel_durable_read(state, sum, nullptr) == before);
    }
    CHECK(spandrel_durable_close(state) == 0);
}
