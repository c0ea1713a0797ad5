// Impossible sizes: the new handler is called, bad_alloc is thrown and can be caught, nothrow forms give
// null, a handler that makes room is asked again.
#include <new>
#include <sys/resource.h>
#include <vector>

#include "abi.h"

static size_t impossible() { return opaque((size_t)1 << 60); }

static int calls;

template <typename F>
static bool throws(F allocate) {
    try {
        void *p = allocate();
        CHECK(false, "an impossible size gave %p", p);
    } catch (const std::bad_alloc &e) {
        return e.what() != nullptr;
    }
    return false;
}

static std::vector<void *> ballast;

static void free_some_memory() {
    calls++;
    if (ballast.empty()) {
        std::set_new_handler(nullptr);
        return;
    }
    for (int i = 0; i < 8 && !ballast.empty(); i++) {
        free(ballast.back());
        ballast.pop_back();
    }
    malloc_trim(0);
}

static void without_a_handler() {
    std::set_new_handler(nullptr);
    const std::align_val_t al{128};
    CHECK(throws([] { return ::operator new(impossible()); }), "new");
    CHECK(throws([] { return ::operator new[](impossible()); }), "new[]");
    CHECK(throws([=] { return ::operator new(impossible(), al); }), "aligned new");
    CHECK(throws([=] { return ::operator new[](impossible(), al); }), "aligned new[]");
    CHECK(throws([] { return ::operator new(opaque(SIZE_MAX)); }), "new(SIZE_MAX)");
    CHECK(throws([] { return (void *)new std::vector<char>(impossible()); }), "vector");
    CHECK(::operator new(impossible(), std::nothrow) == nullptr, "nothrow new");
    CHECK(::operator new[](impossible(), std::nothrow) == nullptr, "nothrow new[]");
    CHECK(::operator new(impossible(), al, std::nothrow) == nullptr, "aligned nothrow new");
    CHECK(::operator new[](impossible(), al, std::nothrow) == nullptr, "aligned nothrow new[]");
}

static void with_a_handler() {
    calls = 0;
    std::set_new_handler([] {
        if (++calls == 3) throw std::bad_alloc();
    });
    CHECK(throws([] { return ::operator new(impossible()); }), "handler that throws");
    CHECK(calls == 3, "the handler was called %d times", calls);

    calls = 0;
    CHECK(::operator new(impossible(), std::nothrow) == nullptr, "nothrow, handler that throws");
    CHECK(calls == 3, "nothrow: the handler was called %d times", calls);

    calls = 0;
    CHECK(throws([] { return ::operator new(impossible(), std::align_val_t(4096)); }), "aligned, handler that throws");
    CHECK(calls == 3, "aligned: the handler was called %d times", calls);

    // A handler that takes itself away ends the loop.
    calls = 0;
    std::set_new_handler([] {
        calls++;
        std::set_new_handler(nullptr);
    });
    CHECK(throws([] { return ::operator new(impossible()); }), "handler that removes itself");
    CHECK(calls == 1, "the handler was called %d times", calls);
}

static void a_handler_that_makes_room() {
    ballast.reserve(4096);
    for (int i = 0; i < 4096; i++) {
        void *p = malloc(16 * MIB);
        if (p == nullptr) break;
        ballast.push_back(p);
    }
    CHECK(ballast.size() < 4000, "RLIMIT_AS did not limit");
    calls = 0;
    std::set_new_handler(free_some_memory);
    std::vector<void *> gained;
    for (int i = 0; i < 16; i++) {
        void *p = ::operator new(32 * MIB);
        *(char *)p = 1;
        gained.push_back(p);
    }
    CHECK(calls > 0, "memory was exhausted but the handler was not called");
    for (void *p : gained) ::operator delete(p);
    for (void *p : ballast) free(p);
    ballast.clear();
    std::set_new_handler(nullptr);
}

int main(int argc, char **argv) {
    if (argc == 1) {
        // An allocator may have reserved more than the limit already, so the program starts anew under it.
        struct rlimit limit = {3 * GIB, 3 * GIB};
        CHECK(setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit");
        execl("/proc/self/exe", argv[0], "limited", NULL);
        CHECK(false, "exec");
    }
    without_a_handler();
    with_a_handler();
    a_handler_that_makes_room();
    without_a_handler();
    // And the program goes on.
    for (int i = 0; i < 1000; i++) delete[] new int[(size_t)i * 10 + 1];
    return 0;
}
