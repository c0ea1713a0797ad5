// What translated commands do beside storing: they allocate in the state, jump and throw within, and are refused where the program is another one.
//   durable_translated DIRECTORY allocate|throw|jump|open|drawn|leads
#include "durable.h"

#include <malloc.h>

#include <csetjmp>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#ifdef ANOTHER_BUILD
extern const char another_build[];
const char another_build[] = "another build";
#endif

namespace {

spandrel_durable *db;

bool is_inside(const volatile void *object) {
    uintptr_t at = reinterpret_cast<uintptr_t>(object), base = reinterpret_cast<uintptr_t>(spandrel_durable_base(db));
    return at >= base && at - base < spandrel_durable_bytes(db);
}

struct Kept {
    char *text, *line;
    std::vector<std::string> *strings;
    void *of_process;
    uint64_t count;
};

Kept *kept;

// The handle is not known in `init`.
int init(spandrel_durable *state, void *) {
    kept = static_cast<Kept *>(spandrel_durable_root(state, "kept"));
    if (kept) return 0;
    kept = static_cast<Kept *>(calloc(1, sizeof(Kept)));
    return spandrel_durable_set_root(state, "kept", kept);
}

int of_process(void *argument) {
    *static_cast<void **>(argument) = malloc(1000);
    return 17;
}

void *from_process;

int allocate(spandrel_durable *state, void *) {
    void *objects[] = {malloc(100),           calloc(3, 50),        aligned_alloc(64, 640), memalign(4096, 10), valloc(1),
                       realloc(nullptr, 70),  strdup("a text"),     strndup("a text", 3),   new int(3),         new char[333],
                       new (std::nothrow) int, reallocarray(nullptr, 3, 5), spandrel_durable_malloc(state, 40)};
    for (void *object : objects) CHECK(is_inside(object) && malloc_usable_size(object) > 0);
    CHECK(reinterpret_cast<uintptr_t>(objects[2]) % 64 == 0 && reinterpret_cast<uintptr_t>(objects[3]) % 4096 == 0);
    struct alignas(128) Wide {
        char bytes[256];
    };
    Wide *wide = new Wide;
    CHECK(is_inside(wide) && reinterpret_cast<uintptr_t>(wide) % 128 == 0);
    delete wide;
    // Where the address is stored is in the state as well.
    CHECK(posix_memalign(&kept->of_process, 256, 100) == 0 && is_inside(kept->of_process));
    CHECK(posix_memalign(&kept->of_process, 3, 100) == EINVAL);
    free(kept->of_process);
    kept->of_process = nullptr;
    volatile size_t much = SIZE_MAX / 2;
    FAILS(ENOMEM, malloc(much) == nullptr);
    FAILS(ENOMEM, calloc(much, 16) == nullptr);
    for (size_t at = 0; at < sizeof objects / sizeof *objects; at++) {
        if (at == 8 || at == 10)
            delete static_cast<int *>(objects[at]);
        else if (at == 9)
            delete[] static_cast<char *>(objects[at]);
        else
            free(objects[at]);
    }
    free(nullptr);

    char *grown = static_cast<char *>(malloc(10));
    strcpy(grown, "123456789");
    for (size_t size = 20; size < 100000; size *= 3) {
        grown = static_cast<char *>(realloc(grown, size));
        CHECK(is_inside(grown) && strcmp(grown, "123456789") == 0);
        memset(grown + 10, 'x', size - 10);
    }
    CHECK(realloc(grown, 0) == nullptr);

    // Objects of the process stay that.
    CHECK(malloc_usable_size(from_process) >= 300);
    void *own = nullptr;
    CHECK(spandrel_durable_outside(of_process, &own) == 17 && own && !is_inside(own));
    own = realloc(own, 100000);
    CHECK(!is_inside(own) && malloc_usable_size(own) >= 100000);
    free(own);
    CHECK(is_inside(memcpy(malloc(8), "1234567", 8)));

    // A library's allocations: the buffer of a file is the process's, a line that is read is not.
    FILE *file = fopen("/proc/self/cmdline", "r");
    size_t room = 0;
    CHECK(file && getline(&kept->line, &room, file) > 0 && is_inside(kept->line) && !is_inside(file));
    fclose(file);
    printf("in a command\n");
    free(kept->text);
    CHECK(asprintf(&kept->text, "%s %d", "number", 15) > 0 && is_inside(kept->text));
    if (!kept->strings) kept->strings = new std::vector<std::string>;
    for (int i = 0; i < 1000; i++) kept->strings->push_back(std::string(i % 50, 'a'));
    CHECK(is_inside(kept->strings->data()) && is_inside(kept->strings->back().data()));
    kept->count++;
    return 0;
}

int look(spandrel_durable *, void *argument) {
    CHECK(kept->count == *static_cast<uint64_t *>(argument) && kept->strings->size() == 1000 * kept->count);
    for (size_t i = 0; i < kept->strings->size(); i++) CHECK((*kept->strings)[i] == std::string(i % 1000 % 50, 'a'));
    CHECK(strcmp(kept->text, "number 15") == 0 && kept->line[0]);
    // What a command that reads allocates is the process's.
    void *object = malloc(10);
    CHECK(!is_inside(object));
    free(object);
    return 0;
}

std::jmp_buf inside;

void leap(int depth) {
    if (depth == 3) std::longjmp(inside, 5);
    if (depth > 0) leap(depth - 1);
}

int jump(spandrel_durable *, void *) {
    if (int result = setjmp(inside)) {
        kept->count += result;
        return 0;
    }
    leap(10);
    return -1;
}

int catches(spandrel_durable *, void *) {
    for (int i = 0; i < 100; i++) {
        try {
            std::string text(100 + i, 'b');
            throw std::runtime_error(text);
        } catch (const std::exception &why) {
            kept->count += strlen(why.what());
        }
    }
    return 0;
}

int throws(spandrel_durable *, void *) {
    kept->count++;
    throw std::runtime_error("out of the command");
}

int add(spandrel_durable *, void *) {
    kept->count++;
    return 0;
}

int leads(spandrel_durable *, void *) {
    kept->of_process = stdout;
    return 0;
}

} // namespace

int main(int count, char **arguments) {
    CHECK(count == 3);
    std::string what = arguments[2];
    if (what != "drawn" && what != "leads") CHECK(spandrel_durable_fix_addresses() == 0);
    spandrel_durable_options options = durable_options();
    options.stores = 4;
    FAILS(EINVAL, spandrel_durable_open(arguments[1], &options, init, nullptr) == nullptr);
    options.stores = SPANDREL_DURABLE_STORES_VERIFIED;
    db = spandrel_durable_open(arguments[1], &options, init, nullptr);
    if (!db) {
        printf("%d %s\n", errno, spandrel_durable_error_text());
        return 3;
    }
    uint64_t before = kept->count;
    if (what == "allocate") {
        from_process = malloc(300);
        CHECK(spandrel_durable_write(db, allocate, nullptr) == 0);
        CHECK(spandrel_durable_write(db, allocate, nullptr) == 0);
        uint64_t expected = before + 2;
        CHECK(spandrel_durable_read(db, look, &expected) == 0);
        CHECK(spandrel_durable_close(db) == 0);
        db = spandrel_durable_open(arguments[1], &options, init, nullptr);
        CHECK(db && spandrel_durable_read(db, look, &expected) == 0);
        free(from_process);
    } else if (what == "jump") {
        CHECK(spandrel_durable_write(db, jump, nullptr) == 0 && kept->count == before + 5);
        CHECK(spandrel_durable_write(db, catches, nullptr) == 0 && kept->count == before + 5 + 100 * 100 + 4950);
    } else if (what == "leads") {
        CHECK(spandrel_durable_write(db, leads, nullptr) == 0);
    } else if (what == "throw") {
        CHECK(spandrel_durable_write(db, add, nullptr) == 0);
        printf("count %llu\n", static_cast<unsigned long long>(before + 1));
        fflush(stdout);
        spandrel_durable_write(db, throws, nullptr);
        return 1;
    } else {
        CHECK(spandrel_durable_write(db, add, nullptr) == 0);
        printf("count %llu\n", static_cast<unsigned long long>(before));
    }
    spandrel_durable_figures figures{};
    figures.struct_size = sizeof figures;
    CHECK(spandrel_durable_get_figures(db, &figures) == 0 && figures.missed == 0);
    CHECK(spandrel_durable_close(db) == 0);
    return 0;
}
