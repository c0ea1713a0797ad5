// Allocation and frees in destructors of thread-specific data, of pthread keys and of C++ thread_local
// objects, over several rounds, also in the main thread and after the allocator's own thread state may be gone.
#include <pthread.h>
#include <string>
#include <thread>
#include <vector>

#include "abi.h"

enum { KEYS = 8 };
static pthread_key_t keys[KEYS];
static int destroyed;

struct Value {
    int key, round;
    unsigned char *payload;
    size_t size;
};

static Value *make(int key, int round) {
    Value *v = (Value *)malloc(sizeof *v);
    v->key = key;
    v->round = round;
    v->size = 100 + (size_t)key * 30000;
    v->payload = (unsigned char *)malloc(v->size);
    fill_from(v->payload, 0, v->size, (uint64_t)key);
    return v;
}

static void destroy(void *pointer) {
    Value *v = (Value *)pointer;
    CHECK_PATTERN(v->payload, v->size, (uint64_t)v->key);
    v->payload = (unsigned char *)realloc(v->payload, v->size * 2);
    CHECK_PATTERN(v->payload, v->size, (uint64_t)v->key);
    free(v->payload);
    // Setting the key again asks for another round, up to PTHREAD_DESTRUCTOR_ITERATIONS.
    if (v->round < 3) pthread_setspecific(keys[v->key], make(v->key, v->round + 1));
    for (int i = 0; i < 50; i++) free(malloc((size_t)i * 100));
    __atomic_add_fetch(&destroyed, 1, __ATOMIC_RELAXED);
    free(v);
}

struct Local {
    std::vector<std::string> strings;
    unsigned char *large = nullptr;
    void use(size_t n) {
        for (size_t i = 0; i < n; i++) strings.emplace_back(i * 10, 'y');
        large = (unsigned char *)malloc(300 * KIB);
        fill_from(large, 0, 300 * KIB, 5);
    }
    ~Local() {
        for (size_t i = 0; i < strings.size(); i++) CHECK(strings[i].size() == i * 10, "thread_local string");
        std::string more(100000, 'z');
        strings.push_back(more);
        if (large) CHECK_PATTERN(large, 300 * KIB, 5);
        free(large);
    }
};
static thread_local Local local;

static void *thread(void *argument) {
    local.use(20 + (size_t)(uintptr_t)argument % 50);
    for (int i = 0; i < KEYS; i++) pthread_setspecific(keys[i], make(i, 0));
    return malloc(1000);
}

int main() {
    for (int i = 0; i < KEYS; i++) CHECK(pthread_key_create(&keys[i], destroy) == 0, "key");
    enum { THREADS = 400, AT_ONCE = 8 };
    for (int batch = 0; batch < THREADS / AT_ONCE; batch++) {
        pthread_t threads[AT_ONCE];
        for (uintptr_t i = 0; i < AT_ONCE; i++) CHECK(pthread_create(&threads[i], NULL, thread, (void *)(i + (uintptr_t)batch)) == 0, "thread");
        for (int i = 0; i < AT_ONCE; i++) {
            void *result;
            CHECK(pthread_join(threads[i], &result) == 0, "join");
            free(result);
        }
    }
    CHECK(destroyed == THREADS * KEYS * 4, "%d destructors ran", destroyed);
    // The main thread: pthread_exit runs its destructors too, in a thread that is still the process.
    std::thread([] { local.use(100); }).join();
    local.use(100);
    for (int i = 0; i < KEYS; i++) pthread_setspecific(keys[i], make(i, 0));
    pthread_exit(NULL);
}
