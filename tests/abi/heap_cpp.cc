// The header from C++: a stack of values that outlives the process, in an anonymous place.
//   heap_cpp PATH
#include <makalu.h>

#include <memory>
#include <string>

#include "heap.h"

struct Close {
    void operator()(spandrel_heap *heap) const { CHECK(spandrel_heap_close(heap) == 0); }
};
using Heap = std::unique_ptr<spandrel_heap, Close>;

// A pointer that holds wherever the heap is mapped.
template <class T>
struct Word {
    uint64_t raw = 0;
    T *in(const Heap &heap) const { return static_cast<T *>(spandrel_heap_at(heap.get(), raw)); }
};

struct Node {
    Word<Node> next;
    char text[32];
};

int main(int count, char **words) {
    CHECK(count == 2);
    {
        Heap heap(spandrel_heap_start(words[1], nullptr));
        CHECK(heap);
        Word<Node> top;
        for (int i = 0; i < 1000; i++) {
            auto *made = static_cast<Node *>(spandrel_heap_calloc(heap.get(), 1, sizeof(Node)));
            CHECK(made);
            made->next = top;
            snprintf(made->text, sizeof made->text, "value %d", i);
            top = Word<Node>{spandrel_heap_offset(heap.get(), made)};
        }
        CHECK(spandrel_heap_set_root(heap.get(), 3, top.in(heap)) == 0);
    }
    Heap heap(spandrel_heap_restart(words[1], nullptr));
    CHECK(heap);
    int left = 1000;
    for (auto *at = static_cast<Node *>(spandrel_heap_get_root(heap.get(), 3)); at; at = at->next.in(heap)) {
        CHECK(at->text == "value " + std::to_string(--left));
    }
    CHECK(left == 0);
    return 0;
}
