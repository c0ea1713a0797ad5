// The C++ wrapper without exceptions: everything that fails returns why.
//   heap_wrapper_plain PATH
#include <spandrel_heap.hpp>

#include "heap.h"

#if SPANDREL_HEAP_EXCEPTIONS
#error "to be compiled with -fno-exceptions"
#endif

struct shelf {
    spandrel::ptr<shelf> next;
    spandrel::ptr<std::uint64_t> books;
    std::uint64_t count;
};

// An array whose length lies beside it is named by a function.
template <> struct spandrel::traced<shelf> {
    static constexpr bool has_pointers = true;
    static constexpr std::uint64_t layout = 1;
    static void trace(const shelf &value, spandrel::tracer to) {
        to.pointer(value.next);
        to.array(value.books, value.count);
    }
};

using spandrel::heap;

int main(int words, char **word) {
    CHECK(words == 2);
    const auto none = heap::try_open(word[1]);
    CHECK(!none && none.error().number == ENOENT && none.error().path == word[1]);
    CHECK(none.error().text().find(word[1]) == 0 && !none.error().reason.empty());
    const auto how = spandrel::options().size(1 << 20).root<shelf>("shelves");
    auto opened = heap::try_open_or_create(word[1], how);
    CHECK(opened);
    heap in = *std::move(opened);
    auto root = in.try_root<shelf>("shelves");
    CHECK(root && !*root);
    spandrel::ptr<shelf> top;
    for (std::uint64_t count = 1; count <= 100; count++) {
        auto books = in.try_make_array<std::uint64_t>(count);
        CHECK(books);
        auto made = in.try_make<shelf>(shelf{top, *books, count});
        CHECK(made);
        top = *made;
    }
    CHECK(root->try_set(top) && in.try_checkpoint());
    CHECK(in.try_make<shelf>() && in.try_make_text("nothing leads here"));
    const auto found = in.try_collect();
    CHECK(found && found->live == 200 && found->freed == 2);
    CHECK(in.try_close());
    CHECK(!in.try_close() && in.try_close().error().number == EINVAL);
    return 0;
}
