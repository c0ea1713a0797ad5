// Ordinary C++ in a durable state: containers, strings, smart pointers, virtual functions, exceptions. No store is named, and no compiler flag is needed.
// Each thread has a store of its own. A command's effect is a function of its number: the model is the same code run on objects of the process, natively.
//   durable_cpp_plain DIRECTORY translated|verified churn|verify|work NUMBER
#include "durable.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <typeinfo>
#include <unordered_map>
#include <variant>
#include <vector>

namespace {

enum { THREADS = 3, KEPT = 400 };

// splitmix64 (Steele, Lea, Flood 2014): numbers that depend on a command's number alone.
struct Random {
    uint64_t state;
    uint64_t next() {
        uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        return z ^ z >> 31;
    }
    uint64_t below(uint64_t end) { return next() % end; }
};

struct Shape {
    virtual ~Shape() = default;
    virtual uint64_t area() const = 0;
    virtual std::unique_ptr<Shape> grown(uint64_t by) const = 0;
};

struct Square : Shape {
    uint64_t side;
    explicit Square(uint64_t of) : side(of) {}
    uint64_t area() const override { return side * side; }
    std::unique_ptr<Shape> grown(uint64_t by) const override { return std::make_unique<Square>(side + by); }
};

struct Named : Shape {
    std::string name;
    explicit Named(std::string of) : name(std::move(of)) {}
    uint64_t area() const override {
        if (name.size() % 5 == 0) throw std::domain_error("a shape without an area: " + name);
        return std::accumulate(name.begin(), name.end(), uint64_t{0});
    }
    std::unique_ptr<Shape> grown(uint64_t by) const override {
        return std::make_unique<Named>(name.substr(0, 40) + std::to_string(by));
    }
};

uint64_t twice(uint64_t of) { return 2 * of; }

struct Store {
    uint64_t done = 0;
    std::map<std::string, std::string> ordered;
    std::unordered_map<uint64_t, std::vector<uint64_t>> hashed;
    std::vector<std::unique_ptr<Shape>> shapes;
    std::map<uint64_t, std::shared_ptr<std::string>> shared;
    std::set<std::pair<uint64_t, std::string>> sorted;
    std::deque<std::variant<uint64_t, std::string>> queue;
    std::list<double> numbers;
    std::function<uint64_t(uint64_t)> function = twice;
    std::string text;
    uint64_t caught = 0;
};

std::string words(Random &random) {
    static const char *const some[] = {"arch", "bridge", "deck", "pier", "span", "spandrel", "vault"};
    std::ostringstream all;
    for (uint64_t rest = random.below(6); rest > 0; rest--) all << some[random.below(7)] << ' ' << random.below(1000);
    all << random.below(100000) / 7.0;
    return all.str();
}

// The command of a number.
void apply(Store &store, uint64_t thread, uint64_t number) {
    Random random{thread << 48 | number};
    for (uint64_t rest = 1 + random.below(4); rest > 0; rest--) {
        switch (random.below(12)) {
        case 0:
        case 1: store.ordered[words(random)] = words(random); break;
        case 2: {
            auto found = store.ordered.lower_bound(words(random));
            if (found != store.ordered.end()) store.ordered.erase(found);
            break;
        }
        case 3: {
            std::vector<uint64_t> &some = store.hashed[random.below(KEPT)];
            for (uint64_t i = random.below(40); i > 0; i--) some.push_back(random.next());
            std::sort(some.begin(), some.end());
            if (some.size() > 100) some.erase(some.begin() + 10, some.end() - 10);
            break;
        }
        case 4: store.hashed.erase(random.below(KEPT)); break;
        case 5: {
            if (random.below(2) == 0)
                store.shapes.push_back(std::make_unique<Square>(random.below(100)));
            else
                store.shapes.push_back(std::make_unique<Named>(words(random)));
            if (store.shapes.size() > KEPT) store.shapes.erase(store.shapes.begin(), store.shapes.begin() + KEPT / 2);
            break;
        }
        case 6:
            // Exceptions of the program's functions and of the library, caught within the command.
            try {
                for (const std::unique_ptr<Shape> &shape : store.shapes) store.done += 0 * shape->area();
                store.text = store.ordered.at(words(random));
            } catch (const std::domain_error &why) {
                store.text = why.what();
                store.caught++;
            } catch (const std::out_of_range &) {
                store.text.append(3, 'x').resize(random.below(200), 'y');
                store.caught += 2;
            }
            break;
        case 7: {
            auto of = std::make_shared<std::string>(words(random));
            for (uint64_t i = random.below(5); i > 0; i--) store.shared[random.below(KEPT)] = of;
            auto other = store.shared.find(random.below(KEPT));
            if (other != store.shared.end()) store.shared[random.below(KEPT)] = other->second;
            store.shared.erase(random.below(KEPT));
            break;
        }
        case 8:
            store.sorted.emplace(random.below(1000), words(random));
            if (store.sorted.size() > KEPT) store.sorted.erase(store.sorted.begin());
            break;
        case 9:
            if (random.below(2) == 0)
                store.queue.emplace_back(random.next());
            else
                store.queue.emplace_front(words(random));
            while (store.queue.size() > KEPT) store.queue.pop_back();
            break;
        case 10: {
            if (!store.shapes.empty()) {
                std::unique_ptr<Shape> &shape = store.shapes[random.below(store.shapes.size())];
                shape = shape->grown(random.below(10));
            }
            store.numbers.push_back(std::sqrt(static_cast<double>(random.below(1000000))));
            if (store.numbers.size() > KEPT) store.numbers.pop_front();
            if (random.below(8) == 0) store.numbers.sort();
            break;
        }
        default: {
            uint64_t plus = random.below(100);
            std::string kept = words(random);
            if (random.below(3) == 0)
                store.function = twice;
            else
                store.function = [plus, kept](uint64_t of) { return of + plus + kept.size(); };
            store.caught += store.function(plus) % 3;
        }
        }
    }
    while (store.ordered.size() > KEPT) store.ordered.erase(store.ordered.begin());
    store.done++;
}

uint64_t area_of(const Shape &shape) {
    try {
        return shape.area();
    } catch (const std::domain_error &why) {
        return std::hash<std::string>()(why.what());
    }
}

// Whether two stores have the same values.
bool are_same(const Store &one, const Store &other) {
    auto is_same_shape = [](const std::unique_ptr<Shape> &a, const std::unique_ptr<Shape> &b) {
        const Shape &first = *a, &second = *b;
        return typeid(first) == typeid(second) && area_of(first) == area_of(second);
    };
    auto is_same_shared = [](const auto &a, const auto &b) {
        return a.first == b.first && *a.second == *b.second && a.second.use_count() == b.second.use_count();
    };
    return one.done == other.done && one.ordered == other.ordered && one.hashed == other.hashed && one.sorted == other.sorted &&
           one.queue == other.queue && one.numbers == other.numbers && one.text == other.text && one.caught == other.caught &&
           one.function(12345) == other.function(12345) &&
           std::equal(one.shapes.begin(), one.shapes.end(), other.shapes.begin(), other.shapes.end(), is_same_shape) &&
           std::equal(one.shared.begin(), one.shared.end(), other.shared.begin(), other.shared.end(), is_same_shared);
}

// What a thread was told: the number of commands that have returned. Shared memory of a file survives the process.
volatile uint64_t *acknowledged;
spandrel_durable *db;
struct Stores {
    Store of[THREADS];
};
Stores *stores;
Stores models;

int init(spandrel_durable *state, void *) {
    stores = static_cast<Stores *>(spandrel_durable_root(state, "stores"));
    if (stores) return 0;
    stores = new Stores;
    return spandrel_durable_set_root(state, "stores", stores);
}

struct Step {
    uint64_t thread, number;
    bool is_kept;
};

int step(spandrel_durable *, void *argument) {
    const Step &of = *static_cast<Step *>(argument);
    apply(stores->of[of.thread], of.thread, of.number);
    return of.is_kept ? 0 : -1;
}

int look(spandrel_durable *, void *argument) {
    uint64_t thread = *static_cast<uint64_t *>(argument);
    return are_same(stores->of[thread], models.of[thread]);
}

int done(spandrel_durable *, void *argument) {
    uint64_t &of = *static_cast<uint64_t *>(argument);
    of = stores->of[of].done;
    return 0;
}

// Has the models be what the stores are to be, and compares.
void verify() {
    for (uint64_t thread = 0; thread < THREADS; thread++) {
        uint64_t count = thread;
        CHECK(spandrel_durable_read(db, done, &count) == 0);
        // One command may have been durable and not acknowledged.
        CHECK(count >= acknowledged[thread] && count <= acknowledged[thread] + 1);
        while (models.of[thread].done < count) apply(models.of[thread], thread, models.of[thread].done);
        CHECK(spandrel_durable_read(db, look, &thread) == 1);
        acknowledged[thread] = count;
    }
}

void work(uint64_t thread, uint64_t count) {
    for (uint64_t rest = count; rest > 0; rest--) {
        uint64_t number = acknowledged[thread];
        if (number % 23 == 7) {
            Step refused{thread, number + 1000000, false};
            FAILS(ECANCELED, spandrel_durable_write(db, step, &refused) == -1);
        }
        Step one{thread, number, true};
        CHECK(spandrel_durable_write(db, step, &one) == 0);
        acknowledged[thread] = number + 1;
    }
}

} // namespace

int main(int count, char **arguments) {
    CHECK(spandrel_durable_fix_addresses() == 0);
    CHECK(count >= 4);
    std::string directory = arguments[1], stores_by = arguments[2], what = arguments[3];
    int file = open((directory + ".acknowledged").c_str(), O_RDWR | O_CREAT, 0600);
    CHECK(file >= 0 && ftruncate(file, 4096) == 0);
    void *shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(shared != MAP_FAILED);
    acknowledged = static_cast<uint64_t *>(shared);
    spandrel_durable_options options = durable_options();
    options.stores = stores_by == "verified" ? SPANDREL_DURABLE_STORES_VERIFIED : SPANDREL_DURABLE_STORES_TRANSLATED;
    db = spandrel_durable_open(directory.c_str(), &options, init, nullptr);
    CHECK(db);
    verify();
    if (what != "verify") {
        uint64_t turns = what == "work" ? std::stoull(arguments[4]) : UINT64_MAX;
        puts("begun");
        fflush(stdout);
        std::vector<std::thread> threads;
        for (uint64_t thread = 0; thread < THREADS; thread++) threads.emplace_back(work, thread, turns);
        for (std::thread &thread : threads) thread.join();
        verify();
    }
    spandrel_durable_figures figures{};
    figures.struct_size = sizeof figures;
    CHECK(spandrel_durable_get_figures(db, &figures) == 0);
    CHECK(figures.missed == 0);
    printf("changed %llu\n", static_cast<unsigned long long>(figures.changed / 32));
    CHECK(spandrel_durable_close(db) == 0);
    // The same from the file alone.
    db = spandrel_durable_open(directory.c_str(), &options, init, nullptr);
    CHECK(db && durable_report(db).was_closed);
    verify();
    CHECK(spandrel_durable_close(db) == 0);
    return 0;
}
