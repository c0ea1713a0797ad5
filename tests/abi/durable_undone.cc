// Commands that refuse are undone, beside commands that do not; a command that throws or calls abort ends the process, and one that is left by longjmp the use of the state.
//   durable_undone DIRECTORY refuse|throw|abort|jump|verify
#include "durable_named.h"

#include <csetjmp>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

enum { THREADS = 4, TURNS = 40, WORDS = 200 };

struct Counters {
    uint64_t kept[THREADS];
    uint64_t words[THREADS][WORDS];
};

// An allocator of the state of the running command.
template <class T> struct InState {
    using value_type = T;
    spandrel_durable *state;
    explicit InState(spandrel_durable *of) : state(of) {}
    template <class U> InState(const InState<U> &from) : state(from.state) {}
    T *allocate(size_t count) {
        void *made = spandrel_durable_calloc(state, count, sizeof(T));
        if (!made) throw std::bad_alloc();
        return static_cast<T *>(made);
    }
    void deallocate(T *object, size_t) { CHECK(spandrel_durable_free(state, object) == 0); }
    template <class U> bool operator==(const InState<U> &with) const { return state == with.state; }
    template <class U> bool operator!=(const InState<U> &with) const { return state != with.state; }
};

spandrel_durable *db;
std::jmp_buf outside;

int init(spandrel_durable *state, void *) {
    if (spandrel_durable_root(state, "counters")) return 0;
    void *counters = spandrel_durable_calloc(state, 1, sizeof(Counters));
    CHECK(counters && spandrel_durable_set_root(state, "counters", counters) == 0);
    return 0;
}

Counters *counters_of(spandrel_durable *state) {
    return static_cast<Counters *>(spandrel_durable_root(state, "counters"));
}

void set(spandrel_durable *state, uint64_t &word, uint64_t value) {
    (void)state;
    SET(word, value);
}

// Changes all that the thread has; `is_kept` decides whether that is to be.
struct Step {
    uint64_t thread;
    bool is_kept;
};

int step(spandrel_durable *state, void *argument) {
    const Step &of = *static_cast<Step *>(argument);
    Counters *counters = counters_of(state);
    uint64_t kept = counters->kept[of.thread] + 1;
    for (uint64_t &word : counters->words[of.thread]) {
        CHECK(word == kept - 1);
        set(state, word, kept);
    }
    set(state, counters->kept[of.thread], kept);
    // Memory of the state, of which nothing stays.
    std::vector<uint64_t, InState<uint64_t>> some(InState<uint64_t>{state});
    for (uint64_t i = 0; i < 100; i++) some.push_back(i);
    if (!of.is_kept) some.push_back(*static_cast<uint64_t *>(spandrel_durable_calloc(state, 1, 4096)));
    return of.is_kept ? static_cast<int>(kept) : -5;
}

int look(spandrel_durable *state, void *argument) {
    const Counters *counters = counters_of(state);
    for (int thread = 0; thread < THREADS; thread++)
        for (uint64_t word : counters->words[thread]) CHECK(word == counters->kept[thread]);
    if (argument)
        for (uint64_t kept : counters->kept) CHECK(kept == *static_cast<uint64_t *>(argument));
    return 0;
}

int throws(spandrel_durable *state, void *argument) {
    CHECK(step(state, argument) > 0);
    throw std::runtime_error("on purpose");
}

int aborts(spandrel_durable *state, void *argument) {
    CHECK(step(state, argument) > 0);
    // Half of a second change.
    uint64_t *words = counters_of(state)->words[0];
    for (int at = 0; at < WORDS / 2; at++) set(state, words[at], 4711);
    std::abort();
}

int jumps(spandrel_durable *state, void *argument) {
    CHECK(step(state, argument) > 0);
    std::longjmp(outside, 1);
}

void refuse() {
    std::vector<std::thread> threads;
    for (uint64_t thread = 0; thread < THREADS; thread++)
        threads.emplace_back([thread] {
            for (int turn = 1; turn <= TURNS; turn++) {
                Step kept{thread, true}, refused{thread, false};
                if (turn % 4 == 0) FAILS(ECANCELED, spandrel_durable_write(db, step, &refused) == -1);
                CHECK(spandrel_durable_write(db, step, &kept) == turn);
                CHECK(spandrel_durable_read(db, look, nullptr) == 0);
            }
        });
    for (std::thread &thread : threads) thread.join();
}

} // namespace

int main(int count, char **arguments) {
    CHECK(count == 3);
    const char *what = arguments[2];
#ifdef TRANSLATED
    CHECK(spandrel_durable_fix_addresses() == 0);
#endif
    spandrel_durable_options options = named_options();
    db = spandrel_durable_open(arguments[1], &options, init, nullptr);
    CHECK(db);
    Step of{0, true};
    if (strcmp(what, "refuse") == 0) {
        refuse();
    } else if (strcmp(what, "throw") == 0) {
        spandrel_durable_write(db, throws, &of);
        _exit(3);
    } else if (strcmp(what, "abort") == 0) {
        spandrel_durable_write(db, aborts, &of);
        _exit(3);
    } else if (strcmp(what, "jump") == 0) {
        if (setjmp(outside) == 0) spandrel_durable_write(db, jumps, &of);
        // The call ends the process, or fails.
        CHECK(spandrel_durable_write(db, step, &of) == -1 && errno == EDEADLK);
        die();
    }
    uint64_t kept = TURNS;
    CHECK(spandrel_durable_read(db, look, &kept) == 0);
    CHECK(spandrel_durable_close(db) == 0);
    return 0;
}
