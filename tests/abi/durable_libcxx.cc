// What the C++ library keeps for itself is the process's, also where a command is the first to need it and is undone.
//   durable_libcxx DIRECTORY <a name of `kinds`>
#include "durable.h"

#include <fstream>
#include <iostream>
#include <locale>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

spandrel_durable *db;

bool is_inside(const volatile void *object) {
    uintptr_t at = reinterpret_cast<uintptr_t>(object), base = reinterpret_cast<uintptr_t>(spandrel_durable_base(db));
    return at >= base && at - base < spandrel_durable_bytes(db);
}

void locales() {
    static std::locale kept = std::locale::classic();
    kept = std::locale(std::locale("C.UTF-8"), "C", std::locale::numeric);
    std::locale::global(kept);
    std::ostringstream text;
    text.imbue(std::locale());
    text << 1234567 << ' ' << 1.5;
    CHECK(text.str() == "1234567 1.5");
    std::wostringstream wide;
    wide << 12 << L" of " << 3.25;
    CHECK(wide.str() == L"12 of 3.25");
}

// A locale of the process that no stream has used: the C++ library makes tables of its numbers with the first use.
std::locale *unused;

void numbers() {
    std::ostringstream text;
    text.imbue(*unused);
    text << 1234567 << ' ' << 1.5 << ' ' << std::boolalpha << true;
    CHECK(text.str() == "1234567 1.5 true");
    std::istringstream from("12 1.5 true");
    from.imbue(*unused);
    int number;
    double part;
    CHECK(from >> number >> part && number == 12 && part == 1.5);
}

void files() {
    static std::ofstream kept;
    if (!kept.is_open()) kept.open("/dev/null");
    for (int i = 0; i < 5000; i++) kept << "line " << i << '\n';
    CHECK(kept.good());
    std::ifstream other("/proc/self/status");
    std::string line;
    CHECK(std::getline(other, line) && line.compare(0, 5, "Name:") == 0);
    std::cout << "a line" << std::endl;
}

void streams() {
    static const int index = std::ios_base::xalloc();
    static int last;
    last = std::max(std::ios_base::xalloc(), index) + 20;
    std::cout.iword(last) = 7;
    CHECK(std::cout.iword(last) == 7);
}

void exceptions() {
    for (int i = 0; i < 100; i++) {
        try {
            throw std::runtime_error(std::string(100 + i, 'b'));
        } catch (const std::exception &why) {
            CHECK(strlen(why.what()) == 100u + i);
        }
    }
    try {
        dynamic_cast<std::ostringstream &>(static_cast<std::ostream &>(std::cout)) << 1;
        CHECK(false);
    } catch (const std::bad_cast &) {
    }
}

struct Counted {
    int count = 0;
    ~Counted() { CHECK(count < 1000); }
};

void threads() {
    thread_local Counted counted;
    counted.count++;
    static Counted once;
    once.count++;
}

const std::map<std::string, void (*)()> kinds = {
    {"locales", locales}, {"numbers", numbers}, {"files", files}, {"streams", streams}, {"exceptions", exceptions}, {"threads", threads},
};

void (*use)();

int undone(spandrel_durable *, void *) {
    use();
    return -1;
}

int kept(spandrel_durable *, void *) {
    use();
    return 0;
}

int scribble(spandrel_durable *, void *) {
    static void *all[3000];
    for (int i = 0; i < 3000; i++) {
        size_t size = 16 + i % 100 * 24;
        CHECK((all[i] = malloc(size)) && is_inside(all[i]));
        memset(all[i], 0xff, size);
    }
    for (void *one : all) free(one);
    return 0;
}

int init(spandrel_durable *, void *) {
    return 0;
}

void open_state(const char *directory) {
    spandrel_durable_options options = durable_options();
    options.stores = SPANDREL_DURABLE_STORES_VERIFIED;
    db = spandrel_durable_open(directory, &options, init, nullptr);
    CHECK(db && spandrel_durable_write(db, init, nullptr) == 0);
}

void close_state() {
    spandrel_durable_figures figures{};
    figures.struct_size = sizeof figures;
    CHECK(spandrel_durable_get_figures(db, &figures) == 0 && figures.missed == 0);
    CHECK(spandrel_durable_close(db) == 0);
}

} // namespace

int main(int count, char **arguments) {
    CHECK(count == 3 && spandrel_durable_fix_addresses() == 0);
    unused = new std::locale("C.UTF-8");
    open_state(arguments[1]);
    use = kinds.at(arguments[2]);
    FAILS(ECANCELED, spandrel_durable_write(db, undone, nullptr) < 0);
    CHECK(spandrel_durable_write(db, scribble, nullptr) == 0);
    use();
    CHECK(spandrel_durable_write(db, kept, nullptr) == 0);
    use();
    close_state();
    use();
    open_state(arguments[1]);
    CHECK(spandrel_durable_write(db, scribble, nullptr) == 0 && spandrel_durable_write(db, kept, nullptr) == 0);
    use();
    FAILS(ECANCELED, spandrel_durable_write(db, undone, nullptr) < 0);
    close_state();
    use();
    return 0;
}
