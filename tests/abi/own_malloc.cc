// A program with an allocator of its own, under glibc's internal names as well. At its first request, with its lock
// held, it registers fork handlers. Whatever is preloaded, all of the program's objects are its own: also those that
// the C library and the C++ runtime allocate for it.
#include <atomic>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sys/wait.h>

#include "abi.h"

static const size_t ROOM = 64 * MIB;
static char pool[ROOM];
static std::atomic<size_t> used;
static std::atomic<bool> ready;
static std::atomic_flag lock = ATOMIC_FLAG_INIT;
static std::atomic<long> freed;
static std::atomic<int> prepared;

static void prepare(void) { prepared++; }

// Each object has its size before it.
static void *take(size_t align, size_t size) {
    if (!ready) {
        while (lock.test_and_set()) {}
        if (!ready) {
            pthread_atfork(prepare, NULL, NULL);
            ready = true;
        }
        lock.clear();
    }
    size_t need = size + align + 32, at = used.fetch_add(need);
    if (size > ROOM || at + need > ROOM) {
        errno = ENOMEM;
        return NULL;
    }
    uintptr_t object = ((uintptr_t)pool + at + 16 + align - 1) & ~(uintptr_t)(align - 1);
    ((size_t *)object)[-1] = size;
    return (void *)object;
}

static bool is_own(const void *object) { return object >= pool && object < pool + ROOM; }

extern "C" {
void *malloc(size_t size) { return take(16, size); }
void free(void *object) {
    if (!object) return;
    CHECK(is_own(object), "a foreign object is freed");
    freed++;
}
void *calloc(size_t count, size_t size) {
    size_t bytes;
    return __builtin_mul_overflow(count, size, &bytes) ? NULL : take(16, bytes);
}
void *realloc(void *object, size_t size) {
    void *moved = take(16, size);
    if (object && moved) {
        CHECK(is_own(object), "a foreign object is resized");
        size_t old = ((size_t *)object)[-1];
        memcpy(moved, object, old < size ? old : size);
        free(object);
    }
    return moved;
}
void *memalign(size_t align, size_t size) { return take(align < 16 ? 16 : align, size); }
void *aligned_alloc(size_t align, size_t size) { return memalign(align, size); }
int posix_memalign(void **out, size_t align, size_t size) { return (*out = memalign(align, size)) ? 0 : ENOMEM; }
void *__libc_malloc(size_t size) { return malloc(size); }
void __libc_free(void *object) { free(object); }
void *__libc_calloc(size_t count, size_t size) { return calloc(count, size); }
void *__libc_realloc(void *object, size_t size) { return realloc(object, size); }
void *__libc_memalign(size_t align, size_t size) { return memalign(align, size); }
}

struct alignas(256) Wide {
    char bytes[256];
};

static void all_is_own() {
    char *copy = strdup("text");
    CHECK(is_own(copy), "strdup");
    void *array = reallocarray(copy, 10, 100);
    CHECK(is_own(array) && !strcmp((char *)array, "text"), "reallocarray");
    free(array);

    long before = freed;
    std::string *text = new std::string(100, 'x');
    CHECK(is_own(text) && is_own(text->data()), "new");
    delete text;
    int *numbers = new int[100], *few = new (std::nothrow) int;
    Wide *wide = new Wide;
    CHECK(is_own(numbers) && is_own(few) && is_own(wide) && is_aligned(wide, 256), "other forms of new");
    delete[] numbers;
    delete few;
    delete wide;
    CHECK(freed >= before + 5, "%ld of 5 objects were freed", freed - before);
}

// Mappings have names where the kernel knows such.
static bool is_mapped(const char *name) {
    char line[256];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps, "maps");
    while (fgets(line, sizeof line, maps)) found |= strstr(line, name) != NULL;
    fclose(maps);
    return found;
}

int main() {
    all_is_own();
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([] {
            for (int i = 0; i < 100; i++) all_is_own();
        });
    for (std::thread &thread : threads) thread.join();
    pid_t child = fork();
    if (child == 0) {
        all_is_own();
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the child ended with %d", status);
    CHECK(prepared == 1, "handlers of fork ran %d times", (int)prepared);
    CHECK(!is_mapped("[anon:spandrel"), "another allocator was started");
    puts("ok");
}
