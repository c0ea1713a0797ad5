// Allocation before main (in the very first functions of the program, when no library's constructor has run),
// in constructors, in static objects, in atexit handlers and in destructors after main.
#include <map>
#include <string>

#include "abi.h"

enum { SLOTS = 12 };
static unsigned char *kept[SLOTS];
static int reached[SLOTS];

static void work(int slot) {
    reached[slot] = 1;
    void *objects[200];
    for (int i = 0; i < 200; i++) {
        objects[i] = malloc((size_t)i * 37 + 1);
        CHECK(objects[i] != NULL, "slot %d", slot);
        memset(objects[i], slot, (size_t)i * 37 + 1);
    }
    for (int i = 0; i < 200; i += 2) objects[i] = realloc(objects[i], 100000);
    for (int i = 0; i < 200; i++) free(objects[i]);
    void *aligned = NULL;
    CHECK(posix_memalign(&aligned, 4096, 10000) == 0, "slot %d", slot);
    free(aligned);
    free(calloc(1000, 1000));
    // One object lives on and is grown by whoever comes next.
    size_t size = 5000 + (size_t)slot * 40000;
    kept[slot] = (unsigned char *)malloc(size);
    CHECK(kept[slot] != NULL, "slot %d", slot);
    fill_from(kept[slot], 0, size, (uint64_t)slot);
    for (int other = 0; other < slot; other++) {
        if (!kept[other]) continue;
        size_t old = 5000 + (size_t)other * 40000;
        CHECK_PATTERN(kept[other], old, (uint64_t)other);
        kept[other] = (unsigned char *)realloc(kept[other], old + 100000);
        CHECK(kept[other] != NULL, "realloc in slot %d", slot);
        CHECK_PATTERN(kept[other], old, (uint64_t)other);
    }
}

static void preinit(int, char **, char **) { work(0); }
// Runs before the constructors of every library, the preloaded one's too.
__attribute__((section(".preinit_array"), used)) static void (*preinit_entry)(int, char **, char **) = preinit;

__attribute__((constructor(101))) static void first_constructor() { work(1); }
__attribute__((constructor)) static void late_constructor() { work(3); }

struct Static {
    std::map<std::string, std::string> map;
    Static() {
        work(2);
        for (int i = 0; i < 1000; i++) map[std::to_string(i)] = std::string((size_t)i, 'x');
    }
    ~Static() {
        CHECK(map.size() == 1000 && map["999"].size() == 999, "static map");
        map.clear();
        work(7);
    }
};
static Static static_object;

__attribute__((destructor(101))) static void last_destructor() {
    work(8);
    for (int slot = 0; slot < SLOTS; slot++) free(kept[slot]);
    for (int slot = 0; slot < 9; slot++) CHECK(reached[slot], "slot %d was not reached", slot);
    // Proof for the harness that the end was reached.
    puts("the end");
    fflush(stdout);
}

int main() {
    CHECK(reached[0] && reached[1] && reached[2] && reached[3], "before main");
    work(4);
    atexit([] { work(6); });
    atexit([] { work(5); });
    return 0;
}
