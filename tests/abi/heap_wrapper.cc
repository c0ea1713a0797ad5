// The C++ wrapper: a list of notes that outlives killed processes, in which every change is the store of one word.
//   heap_wrapper PATH churn MICROSECONDS|verify|closed|errors
#include <sys/time.h>

#include <spandrel_heap.hpp>

#include <utility>

#include "heap.h"

namespace {

struct note {
    spandrel::ptr<note> next;
    spandrel::ptr<char> text;
    std::uint64_t number;
    std::uint64_t decoy; // looks like a pointer, and traced says that it is none
};

struct board {
    spandrel::ptr<note> first;
    spandrel::ptr<note> kept[2];
};

struct other {
    std::uint64_t word;
};

} // namespace

template <> struct spandrel::traced<note> : spandrel::pointers<&note::next, &note::text> {};
template <> struct spandrel::traced<board> : spandrel::pointers<&board::first, &board::kept> {};

namespace {

using spandrel::heap;
using spandrel::ptr;

constexpr std::uint64_t NOTES = 200;

spandrel::options options() { return spandrel::options().size(2 << 20).root<board>("board").root<note>(7); }

std::string text_of(std::uint64_t number) { return "note " + std::to_string(number); }

ptr<note> made(heap &in, std::uint64_t number, ptr<note> next) {
    const ptr<char> decoy = in.make_text("nothing leads here");
    return in.make<note>(note{next, in.make_text(text_of(number)), number, decoy.word()});
}

// Notes of the list; every one of them is whole.
std::uint64_t count(heap &in, const board &of) {
    std::uint64_t found = 0, last = UINT64_MAX;
    for (const note *at = in.get(of.first); at; at = in.get(at->next)) {
        CHECK(at->number < last && in.get(at->text) && text_of(at->number) == in.get(at->text));
        last = at->number;
        found++;
    }
    for (ptr<note> kept : of.kept) CHECK(!kept || text_of(in.get(kept)->number) == in.get(in.get(kept)->text));
    return found;
}

// Pushes a note, and takes the last ones away where there are many: publish, then free.
void churn(heap &in) {
    auto root = in.root<board>("board");
    if (!root) root.set(in.make<board>());
    spandrel::use_heap use(in);
    std::uint64_t length = count(in, *root);
    for (std::uint64_t round = 1;; round++) {
        const std::uint64_t number = root->first ? root->first->number + 1 : 0;
        in.publish(root->first, made(in, number, root->first));
        for (length++; length > NOTES; length--) {
            note *before = in.get(root->first);
            while (before->next->next) before = in.get(before->next);
            const note last = *before->next;
            const ptr<note> gone = before->next;
            in.publish(before->next, nullptr);
            in.destroy(last.text);
            in.destroy(gone);
        }
        if (round % 64 == 0) {
            const ptr<note> kept = root->kept[0];
            in.publish(root->kept[0], nullptr);
            if (kept) {
                const ptr<char> text = kept->text;
                in.destroy(kept);
                in.destroy(text);
            }
            in.publish(root->kept[0], made(in, number, nullptr));
            in.checkpoint();
        }
    }
}

void verify(const char *path) {
    heap in = heap::open(path, options());
    const auto found = in.recovered();
    CHECK(found);
    auto root = in.root<board>("board");
    if (!root) return; // killed before there was any
    const std::uint64_t notes = count(in, *root);
    // The board, and two objects of each note: the words that look like pointers have kept nothing.
    const std::uint64_t kept = root->kept[0] ? 1 : 0;
    CHECK(notes <= NOTES + 1 && found->live == 1 + 2 * (notes + kept));
    in.checkpoint();
}

void closed(const char *path) {
    {
        heap in = heap::open_or_create(path, options());
        CHECK(in.is_new() && !in.recovered() && in.path() == path && in.bytes() >= 2 << 20);
        auto one = in.root<board>("board");
        auto two = in.root<note>(7);
        CHECK(!one && !two && two.index() == 7);
        auto board_ = in.make<board>();
        in.get(board_)->first = made(in, 5, nullptr);
        in.set_roots(one.to(board_), two.to(in.get(board_)->first));
        CHECK(one.get() == board_ && two->number == 5 && in.ptr_to(&*one) == board_);
        auto numbers = in.make_array<std::uint64_t>(1000);
        for (int i = 0; i < 1000; i++) CHECK(in.get(numbers)[i] == 0);
        in.destroy(numbers);
        struct alignas(256) wide {
            char bytes[256];
        };
        CHECK(reinterpret_cast<std::uintptr_t>(in.get(in.make<wide>())) % 256 == 0);
        heap moved = std::move(in);
        CHECK(!in.handle() && moved.handle() && two->number == 5);
        in = std::move(moved);
        CHECK(in.handle() && !moved.handle());
        CHECK(in.guarantee() == spandrel::survives::process || in.guarantee() == spandrel::survives::file);
    } // closed by the destructor
    heap in = heap::open_or_create(path, options());
    CHECK(!in.is_new() && !in.recovered() && in.root<note>(7)->number == 5);
    CHECK(in.collect().live == 3);
    in.close();
    CHECK(!in.handle());
    const std::string copy = std::string(path) + ".copy";
    heap::copy(path, copy);
    heap other = heap::open(copy, options());
    CHECK(!other.recovered() && other.root<note>(7)->number == 5);
}

template <class Work> spandrel::heap_error refused(int number, Work work) {
    try {
        work();
    } catch (const spandrel::heap_error &why) {
        CHECK(why.code().value() == number && !why.reason().empty());
        CHECK(std::string(why.what()).find(why.reason()) != std::string::npos);
        return why;
    }
    fprintf(stderr, "errno %d was expected, and nothing failed\n", number);
    _exit(1);
}

void errors(const char *path) {
    const std::string file = path, absent = file + ".none";
    const auto none = refused(ENOENT, [&] { heap::open(absent); });
    CHECK(none.code() == std::errc::no_such_file_or_directory && none.path() == absent);
    CHECK(std::string(none.what()).find(absent) == 0);
    refused(ENOENT, [&] { heap::open_or_create(file + "/no/folder"); });
    heap in = heap::create(file, options().layout(3));
    refused(EEXIST, [&] { heap::create(file); });
    refused(EEXIST, [&] { heap::copy(file, file); });
    refused(ENOENT, [&] { heap::copy(absent, file + ".copy"); });
    refused(EWOULDBLOCK, [&] { heap::open_or_create(file, options().layout(3)); });
    auto list = in.root<board>("board");
    refused(EPROTOTYPE, [&] { in.root<other>("board"); });
    refused(EINVAL, [&] { in.root<board>(std::string(41, 'a')); });
    refused(EINVAL, [&] { in.root<board>(SPANDREL_HEAP_ROOTS); });
    refused(EINVAL, [&] { in.make_array<board>(SIZE_MAX / 2); });
    const auto object = in.make<board>();
    in.destroy(object);
    refused(EFAULT, [&] { in.destroy(object); });
    in.destroy(ptr<board>());
    const auto wrong = ptr<board>::from_word(12345);
    CHECK(!in.get(wrong) && !in.get(ptr<board>::from_word(object.word() | 0xffffffffffff)));
    refused(EFAULT, [&] { in.destroy(wrong); });
    refused(EFAULT, [&] { list.set(wrong); });
    refused(EFAULT, [&] { in.set_roots(list.to(wrong)); });
    CHECK(!in.ptr_to(&file));
    // What C would take a part of.
    const std::string cut(file + std::string("\0.other", 7));
    CHECK(refused(EINVAL, [&] { heap::open_or_create(cut); }).path() == cut);
    refused(EINVAL, [&] { heap::copy(cut, file + ".copy"); });
    refused(EINVAL, [&] { heap::copy(file, cut); });
    refused(EINVAL, [&] { in.root<board>(std::string("board\0x", 7)); });
    refused(EINVAL, [&] { heap::open(absent, options().root<board>(std::string("a\0b", 3))); });
    // A root that was moved from leads to nothing.
    auto moved = std::move(list);
    CHECK(!list && !list.get() && !moved);
    refused(EINVAL, [&] { list.set(nullptr); });
    refused(EFAULT, [&] { in.set_roots(list.to(in.make<board>())); });
    list = std::move(moved);
    // The path is there once, whatever the reason has in it.
    const spandrel::failure closed_(EINVAL, "heap", "the heap is closed");
    CHECK(closed_.text() == "heap: the heap is closed");
    CHECK(spandrel::failure::of_file(ENOENT, "heap", "heap: no heap").text() == "heap: no heap");
    CHECK(spandrel::failure::of_file(EBADMSG, "heap", "heap.wal: no log").text() == "heap.wal: no log");
    const std::string far = std::string(200, 'x') + "/heap";
    const auto far_ = spandrel::failure::of_file(ENOENT, far, "\xe2\x80\xa6" + far.substr(85) + ": no heap");
    CHECK(far_.reason == "no heap" && far_.text() == far + ": no heap");
    in.close();
    refused(EINVAL, [&] { in.close(); });
    refused(EINVAL, [&] { in.make<board>(); });
    refused(EINVAL, [&] { in.checkpoint(); });
    refused(EINVAL, [&] { list.set(object); });
    CHECK(!list && !in.get(object));
    refused(EPROTOTYPE, [&] { heap::open(file, options().layout(4)); });
    // The name has the layout that it was given, whatever the next program says.
    heap again = heap::open(file, spandrel::options().layout(3));
    refused(EPROTOTYPE, [&] { again.root<other>("board"); });
    CHECK(again.try_root<board>("board")); // the wrong type is not remembered
    CHECK(again.try_root<other>("new")->index() != again.try_root<other>("newer")->index());
}

void kill_after(int microseconds) {
    signal(SIGALRM, [](int) { die(); });
    itimerval timer = {};
    timer.it_value.tv_usec = microseconds;
    CHECK(setitimer(ITIMER_REAL, &timer, nullptr) == 0);
}

} // namespace

int main(int words, char **word) {
    CHECK(words >= 3);
    const std::string mode = word[2];
    CHECK(mode == "churn" || mode == "verify" || mode == "closed" || mode == "errors");
    if (mode == "churn") {
        CHECK(words == 4);
        heap in = heap::open_or_create(word[1], options());
        kill_after(atoi(word[3]));
        churn(in);
    }
    if (mode == "verify") verify(word[1]);
    if (mode == "closed") closed(word[1]);
    if (mode == "errors") errors(word[1]);
    return 0;
}
