// A C++ program under a library that wraps each object: what it gets from one function it gives back by another of
// the family that may do so, and all of them go through the wrapper.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "abi.h"

// The wrapper's header lies before an object of its.
static bool is_wrapped(void *object) { return ((size_t *)object)[-4] == 0x5ca1ab1e5ca1ab1eull; }

struct alignas(512) Wide {
    char bytes[512];
};

int main() {
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; t++)
        threads.emplace_back([] {
            for (int i = 0; i < 3000; i++) {
                std::unique_ptr<std::string> text(new std::string((size_t)i, 'x'));
                std::unique_ptr<Wide> wide(new Wide);
                std::unique_ptr<long[]> numbers(new long[1 + i % 100]);
                CHECK(is_wrapped(text.get()) && is_wrapped(wide.get()) && is_wrapped(numbers.get()), "new");
                void *array = reallocarray(strdup("text"), 1 + (size_t)i % 50, 100);
                CHECK(array && is_wrapped(array) && !strcmp((char *)array, "text"), "reallocarray");
                free(array);
            }
        });
    for (std::thread &thread : threads) thread.join();
    puts("ok");
}
