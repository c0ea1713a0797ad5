// Kinds of stores of C++, compiled with hooks: as durable_stores.c.
//   durable_stores_cpp DIRECTORY
#include "durable.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <list>
#include <map>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace {

spandrel_durable *state_of_command;

template <class T> struct InState {
    using value_type = T;
    InState() = default;
    template <class U> InState(const InState<U> &) {}
    T *allocate(size_t count) {
        void *made = spandrel_durable_malloc(state_of_command, count * sizeof(T));
        if (!made) throw std::bad_alloc();
        return static_cast<T *>(made);
    }
    void deallocate(T *object, size_t) { CHECK(spandrel_durable_free(state_of_command, object) == 0); }
    template <class U> bool operator==(const InState<U> &) const { return true; }
    template <class U> bool operator!=(const InState<U> &) const { return false; }
};

struct Base {
    uint64_t number;
    explicit Base(uint64_t of) : number(of) {}
    virtual ~Base() { number = 0; }
    virtual uint64_t value() const { return number; }
};

struct Derived : Base {
    std::array<uint64_t, 40> more;
    explicit Derived(uint64_t of) : Base(of) { more.fill(of); }
    uint64_t value() const override { return number + 1; }
};

using Vector = std::vector<uint64_t, InState<uint64_t>>;
using List = std::list<uint64_t, InState<uint64_t>>;
using Map = std::map<uint64_t, uint64_t, std::less<uint64_t>, InState<std::pair<const uint64_t, uint64_t>>>;
using String = std::basic_string<char, std::char_traits<char>, InState<char>>;

void objects(char *at) {
    new (at) Derived(7);
    new (at + 1024) Derived(*reinterpret_cast<Derived *>(at));
    *reinterpret_cast<Derived *>(at + 1024) = Derived(8);
}

void swaps(char *at) {
    auto &a = *reinterpret_cast<std::array<uint64_t, 9> *>(at), &b = *reinterpret_cast<std::array<uint64_t, 9> *>(at + 512);
    a.fill(5);
    std::swap(a, b);
    std::rotate(b.begin(), b.begin() + 3, b.end());
}

// What libstdc++ leaves to built-in functions of the compiler.
void bytes(char *at) {
    std::fill_n(at + 1024, 300, 'x');
    std::copy_n(at + 1024, 200, at + 2048);
}

void vectors(char *at) {
    auto &vector = *new (at) Vector;
    for (uint64_t i = 0; i < 1000; i++) vector.push_back(i * 3);
    vector.insert(vector.begin() + 10, 77);
    vector.erase(vector.begin() + 20);
    std::sort(vector.rbegin(), vector.rend());
}

void strings(char *at) {
    auto &string = *new (at) String("a text that is longer than what a string has room for by itself");
    string += ", and more of it, which moves it elsewhere";
    string.replace(2, 4, "word");
}

void atomics(char *at) {
    auto &number = *new (at) std::atomic<uint64_t>(3);
    number += 4;
    number.exchange(9);
}

void lists(char *at) {
    auto &list = *new (at) List;
    for (uint64_t i = 0; i < 50; i++) list.push_back(i);
    list.remove(7);
}

void maps(char *at) {
    auto &map = *new (at) Map;
    for (uint64_t i = 0; i < 50; i++) map[i * 7 % 50] = i;
    map.erase(7);
}

// gcc calls no hooks for what it makes of its built-in functions.
#ifdef __clang__
constexpr bool IS_CLANG = true;
#else
constexpr bool IS_CLANG = false;
#endif

struct Kind {
    const char *what;
    void (*make)(char *);
    bool is_captured;
};

const Kind kinds[] = {
    {"constructors, pointers to virtual functions, assignments", objects, true},
    {"std::swap, std::array", swaps, true},
    {"std::copy and std::fill of bytes", bytes, IS_CLANG},
    {"std::vector, std::sort", vectors, true},
    {"std::basic_string with an allocator", strings, IS_CLANG},
    {"std::atomic", atomics, true},
    {"std::list", lists, false},
    {"std::map, whose tree libstdc++.so balances", maps, false},
};

constexpr int KINDS = sizeof kinds / sizeof *kinds;
constexpr size_t PLACE = 4096;

char *places;

int init(spandrel_durable *state, void *) {
    places = static_cast<char *>(spandrel_durable_root(state, "places"));
    if (places) return 0;
    places = static_cast<char *>(spandrel_durable_aligned_alloc(state, PLACE, KINDS * PLACE));
    CHECK(places && spandrel_durable_memset(state, places, 0, KINDS * PLACE) == 0);
    return spandrel_durable_set_root(state, "places", places);
}

int run(spandrel_durable *state, void *argument) {
    int i = *static_cast<int *>(argument);
    state_of_command = state;
    kinds[i].make(places + i * PLACE);
    return 0;
}

} // namespace

int main(int count, char **arguments) {
    CHECK(count == 2);
    setvbuf(stdout, nullptr, _IOLBF, 0);
    spandrel_durable *db = spandrel_durable_open(arguments[1], nullptr, init, nullptr);
    CHECK(db);
    const char *base = static_cast<char *>(spandrel_durable_base(db));
    int failed = 0;
    std::vector<char> before;
    for (int i = 0; i < KINDS; i++) {
        CHECK(spandrel_durable_write(db, run, &i) == 0);
        before.assign(base, base + spandrel_durable_bytes(db));
        CHECK(spandrel_durable_close(db) == 0);
        db = spandrel_durable_open(arguments[1], nullptr, init, nullptr);
        CHECK(db && spandrel_durable_base(db) == base);
        // All objects of the state, wherever they are; not its first pages, which say how it was opened.
        size_t metadata = static_cast<size_t>(places - base) / 65536 * 65536;
        if (std::equal(before.begin() + static_cast<long>(metadata), before.end(), base + metadata)) continue;
        printf("missed: %s\n", kinds[i].what);
        if (kinds[i].is_captured) failed = fprintf(stderr, "missed: %s\n", kinds[i].what);
    }
    CHECK(failed == 0);
    CHECK(spandrel_durable_close(db) == 0);
    return 0;
}
