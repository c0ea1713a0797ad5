/* spandrel_heap.hpp: the recoverable heap from C++17. Header only, on top of spandrel_heap.h; link with -lspandrel_heap.
 *
 *   spandrel::heap       an open heap: moves, does not copy, closes when it is destroyed
 *   spandrel::ptr<T>     a pointer to store in the heap: 8 bytes, valid wherever the heap is mapped
 *   spandrel::root<T>    a root, by name or by number
 *   spandrel::traced<T>  says where the pointers of a T are, so that recovery need not look at every word
 *
 * Every operation that can fail has two forms. open(…) throws spandrel::heap_error; try_open(…) returns a spandrel::result and
 * throws nothing. A program without exceptions (-fno-exceptions) has the second form only.
 *
 * Objects of the heap are of standard layout and trivially copyable: their constructors and destructors do not run when the heap
 * is opened or recovered. Rules on threads and durability are those of spandrel_heap.h.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef SPANDREL_HEAP_HPP
#define SPANDREL_HEAP_HPP

#include <spandrel_heap.h>
#include <spandrel_heap_pointer.hpp>
#include <spandrel_heap_result.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace spandrel {

template <class T> class root;

/* What a heap lies on: SPANDREL_HEAP_AUTO and the others. */
enum class medium { automatic = SPANDREL_HEAP_AUTO, mapped = SPANDREL_HEAP_MAPPED, logged = SPANDREL_HEAP_LOGGED };

/* What stores survive: SPANDREL_HEAP_SURVIVES_PROCESS and the others. */
enum class survives { process = SPANDREL_HEAP_SURVIVES_PROCESS, file = SPANDREL_HEAP_SURVIVES_FILE, dax = SPANDREL_HEAP_SURVIVES_DAX };

/* How a heap is made or opened: fields of spandrel_heap_options. */
class options {
public:
    options &size(std::size_t bytes) { return c_.size = bytes, *this; }
    options &limit(std::size_t bytes) { return c_.limit = bytes, *this; }
    options &layout(std::uint64_t number) { return c_.layout = number, *this; }
    options &fixed(bool is_fixed = true) { return c_.fixed = is_fixed, *this; }
    options &on(medium where) { return c_.medium = static_cast<int>(where), *this; }

    /* The root of that name or number leads to a T: recovery follows the pointers of traced<T> there. */
    template <class T> options &root(std::string name) { return types_.push_back(detail::type<T>(std::move(name), 0)), *this; }
    template <class T> options &root(unsigned index) { return types_.push_back(detail::type<T>({}, index)), *this; }

private:
    friend class heap;
    spandrel_heap_options c_ = {};
    std::vector<detail::declared> types_;
};

/* What a collection has found: fields of spandrel_heap_collected. */
using collected = spandrel_heap_collected;

/* An open heap. A heap that was moved from, or closed, refuses all operations with EINVAL; so does every heap paths and names with a zero
 * byte in them. */
class heap {
public:
    heap(heap &&) noexcept = default;
    heap &operator=(heap &&other) noexcept {
        if (this != &other) {
            release();
            state_ = std::move(other.state_);
        }
        return *this;
    }
    /* Closes the heap. An error is lost here, and the next opening recovers the heap; close() reports it. */
    ~heap() { release(); }

    /* Opens a heap, and recovers it if it was not closed. */
    static result<heap> try_open(const std::string &path, const options &how = {}) { return make_with(spandrel_heap_open, path, how); }
    /* Makes a heap in a new file. */
    static result<heap> try_create(const std::string &path, const options &how = {}) { return make_with(spandrel_heap_start, path, how); }
    /* Opens a heap, or makes it if there is no such file. */
    static result<heap> try_open_or_create(const std::string &path, const options &how = {}) {
        return make_with(spandrel_heap_open_or_create, path, how);
    }
    /* Opens a heap and recovers nothing: one that was not closed has to be collected before anything is allocated or freed. */
    static result<heap> try_open_offline(const std::string &path, const options &how = {}) {
        return make_with(spandrel_heap_start_off, path, how);
    }

    /* Writes a copy of a heap, open or not, to a new file. See spandrel_heap_copy. */
    static result<void> try_copy(const std::string &path, const std::string &to, unsigned wait_ms = 0) {
        if (detail::is_cut(path) || detail::is_cut(to)) return detail::cut(path);
        if (spandrel_heap_copy(path.c_str(), to.c_str(), wait_ms) == 0) return {};
        const int number = errno;
        return failure::of_file(number, path, spandrel_heap_error_text());
    }

    /* Closes the heap. After an error the heap is closed as well, and the next opening recovers it. */
    result<void> try_close() {
        if (!handle()) return failed();
        if (spandrel_heap_close(state_->taken()) == 0) return {};
        const int number = errno;
        return failure{number, state_->path, spandrel_heap_error_text()};
    }

    /* Makes all that was stored durable, on every medium. */
    result<void> try_checkpoint() { return done(spandrel_heap_checkpoint(handle())); }

    /* Frees what cannot be reached from the roots. No other thread uses the heap meanwhile. */
    result<collected> try_collect() {
        collected found = {};
        found.struct_size = sizeof found;
        if (spandrel_heap_collect(handle(), &found) != 0) return failed();
        return found;
    }

    /* What recovery has found when the heap was opened; empty: the heap had been closed, is new, or is not collected yet. */
    std::optional<collected> recovered() const {
        collected found = {};
        found.struct_size = sizeof found;
        if (spandrel_heap_recovered(handle(), &found) != 1) return {};
        return found;
    }

    /* Allocates a T, made of the arguments and persisted. */
    template <class T, class... A> result<ptr<T>> try_make(A &&...arguments) {
        static_assert(detail::storable<T>, "objects of a heap are of standard layout and trivially copyable");
        unfinished room{handle(), allocate(sizeof(T), alignof(T))};
        if (!room.at) return failed();
        if constexpr (std::is_constructible_v<T, A &&...>) ::new (room.at) T(std::forward<A>(arguments)...);
        else ::new (room.at) T{std::forward<A>(arguments)...};
        return persisted<T>(room, sizeof(T));
    }

    /* Allocates an array of zeroes, persisted. Of the pointer, heap.get is the address of the first. */
    template <class T> result<ptr<T>> try_make_array(std::size_t count) {
        static_assert(detail::storable<T>, "objects of a heap are of standard layout and trivially copyable");
        static_assert(alignof(T) <= 16, "arrays of a heap are aligned to 16 bytes");
        unfinished room{handle(), spandrel_heap_calloc(handle(), count, sizeof(T))};
        if (!room.at) return failed();
        return persisted<T>(room, count * sizeof(T));
    }

    /* Allocates a copy of a text, with a zero behind it, persisted. */
    result<ptr<char>> try_make_text(std::string_view text) {
        unfinished room{handle(), allocate(text.size() + 1, 1)};
        if (!room.at) return failed();
        if (!text.empty()) std::memcpy(room.at, text.data(), text.size());
        static_cast<char *>(room.at)[text.size()] = 0;
        return persisted<char>(room, text.size() + 1);
    }

    /* Frees an object, to which nothing in the heap may lead any more; null is ignored. EFAULT: it is no object, or free already. */
    template <class T> result<void> try_destroy(ptr<T> object) {
        void *at = spandrel_heap_at(handle(), object.word());
        if (!at && object) return failed();
        return done(spandrel_heap_free(handle(), at));
    }

    /* The address of an object. nullptr: the pointer is null, is none, or leads out of the heap. */
    template <class T> T *get(ptr<T> object) const noexcept { return state_ ? state_->at<T>(object.word()) : nullptr; }

    /* The pointer to what lies at an address of the heap; null for what lies elsewhere. */
    template <class T> ptr<T> ptr_to(const T *address) const noexcept {
        return ptr<T>::from_word(spandrel_heap_offset(handle(), address));
    }

    /* Writes an object of the heap back and waits. EFAULT: it lies elsewhere. */
    template <class T> result<void> try_persist(const T &object) { return done(spandrel_heap_persist(handle(), &object, sizeof object)); }

    /* Replaces a word of the heap and persists it: after any failure the old word is there or the new one. The caller persists what the new
     * word leads to before, and destroys what the old word led to afterwards. EFAULT: the word lies elsewhere; it is replaced. */
    template <class W> result<void> try_publish(W &slot, typename detail::same<W>::type word) {
        static_assert(sizeof(W) == 8 && alignof(W) == 8 && std::is_trivially_copyable_v<W>, "one word is replaced as a whole");
        __atomic_store(&slot, &word, __ATOMIC_RELEASE);
        return try_persist(slot);
    }

    /* The root of that name or number. A type that no spandrel::options had for this root is declared here: no other thread uses the heap
     * meanwhile. EPROTOTYPE: the root leads to a type of another layout. */
    template <class T> result<spandrel::root<T>> try_root(const std::string &name) { return rooted<T>(detail::type<T>(name, 0)); }
    template <class T> result<spandrel::root<T>> try_root(unsigned index) { return rooted<T>(detail::type<T>({}, index)); }

    /* Sets several roots, 63 at most, all of them or none: heap.set_roots(one.to(p), two.to(q)). */
    template <class... R> result<void> try_set_roots(const R &...roots) {
        const spandrel_heap_root all[] = {roots...};
        return done(spandrel_heap_set_roots(handle(), all, sizeof...(roots)));
    }

    /* Whether the call that returned the heap has made it. */
    bool is_new() const noexcept { return spandrel_heap_is_new(handle()) == 1; }

    survives guarantee() const noexcept { return static_cast<survives>(spandrel_heap_guarantee(handle())); }
    std::size_t bytes() const noexcept { return spandrel_heap_bytes(handle()); }
    std::string path() const { return state_ ? state_->path : std::string(); }

    /* For functions of spandrel_heap.h; nullptr: closed. */
    spandrel_heap *handle() const noexcept { return state_ ? state_->handle : nullptr; }

#if SPANDREL_HEAP_EXCEPTIONS
    static heap open(const std::string &path, const options &how = {}) { return try_open(path, how).value(); }
    static heap create(const std::string &path, const options &how = {}) { return try_create(path, how).value(); }
    static heap open_or_create(const std::string &path, const options &how = {}) { return try_open_or_create(path, how).value(); }
    static heap open_offline(const std::string &path, const options &how = {}) { return try_open_offline(path, how).value(); }
    static void copy(const std::string &path, const std::string &to, unsigned wait_ms = 0) { try_copy(path, to, wait_ms).value(); }
    void close() { try_close().value(); }
    void checkpoint() { try_checkpoint().value(); }
    collected collect() { return try_collect().value(); }
    template <class T, class... A> ptr<T> make(A &&...arguments) { return try_make<T>(std::forward<A>(arguments)...).value(); }
    template <class T> ptr<T> make_array(std::size_t count) { return try_make_array<T>(count).value(); }
    ptr<char> make_text(std::string_view text) { return try_make_text(text).value(); }
    template <class T> void destroy(ptr<T> object) { try_destroy(object).value(); }
    template <class T> void persist(const T &object) { try_persist(object).value(); }
    template <class W> void publish(W &slot, typename detail::same<W>::type word) { try_publish(slot, word).value(); }
    template <class T> spandrel::root<T> root(const std::string &name) { return try_root<T>(name).value(); }
    template <class T> spandrel::root<T> root(unsigned index) { return try_root<T>(index).value(); }
    template <class... R> void set_roots(const R &...roots) { try_set_roots(roots...).value(); }
#endif

private:
    friend class use_heap;
    std::shared_ptr<detail::state> state_;

    explicit heap(std::shared_ptr<detail::state> state) noexcept : state_(std::move(state)) {}

    /* An object that is freed again if its constructor throws. */
    struct unfinished {
        spandrel_heap *handle;
        void *at;
        ~unfinished() {
            if (at) spandrel_heap_safe_free(handle, at);
        }
    };

    failure failed() const {
        if (state_) return state_->failed();
        return {EINVAL, {}, "the heap was moved from"};
    }
    result<void> done(int outcome) const {
        if (outcome == 0) return {};
        return failed();
    }

    void release() noexcept {
        if (state_ && state_->handle) spandrel_heap_close(state_->taken());
    }

    void *allocate(std::size_t bytes, std::size_t alignment) const {
        const bool needs_more = alignment > 16;
        return needs_more ? spandrel_heap_aligned_alloc(handle(), alignment, bytes) : spandrel_heap_malloc(handle(), bytes);
    }

    template <class T> result<ptr<T>> persisted(unfinished &room, std::size_t bytes) const {
        if (spandrel_heap_persist(handle(), room.at, bytes) != 0) return failed();
        return ptr<T>::from_word(state_->word(std::exchange(room.at, nullptr)));
    }

    template <class Open> static result<heap> make_with(Open open, const std::string &path, const options &how) {
        if (detail::is_cut(path)) return detail::cut(path);
        std::vector<spandrel_heap_root_type> types;
        for (const detail::declared &type : how.types_) {
            if (detail::is_cut(type.name)) return detail::cut(path);
            types.push_back(type.c());
        }
        spandrel_heap_options c = how.c_;
        c.struct_size = sizeof c;
        c.types = types.data();
        c.type_count = types.size();
        auto state = std::make_shared<detail::state>();
        state->path = path;
        state->types = how.types_;
        state->handle = open(path.c_str(), &c);
        if (!state->handle) {
            const int number = errno;
            return failure::of_file(number, path, spandrel_heap_error_text());
        }
        state->base = static_cast<char *>(spandrel_heap_base(state->handle));
        state->bytes = spandrel_heap_bytes(state->handle);
        return heap(std::move(state));
    }

    template <class T> result<spandrel::root<T>> rooted(detail::declared type) {
        if (!handle()) return failed();
        if (detail::is_cut(type.name)) return detail::cut(state_->path);
        bool is_known = false;
        for (const detail::declared &known : state_->types) {
            if (!known.same_root(type)) continue;
            is_known = true;
            if (known.layout != type.layout || known.bytes != type.bytes)
                return failure{EPROTOTYPE, state_->path, "the root was declared with another type: " + type.name};
        }
        if (!is_known) {
            const spandrel_heap_root_type c = type.c();
            if (spandrel_heap_set_types(handle(), &c, 1) != 0) return failed();
        }
        unsigned index = type.index;
        if (!type.name.empty()) {
            const int named = spandrel_heap_named_root(handle(), type.name.c_str());
            if (named < 0) return failed();
            index = static_cast<unsigned>(named);
        }
        /* Last: a type that the root refuses is not remembered, so that the right one is declared afterwards. */
        if (!is_known) state_->types.push_back(std::move(type));
        return spandrel::root<T>(state_, index);
    }
};

/* A root, which leads to a T or to nothing. One that was moved from leads to nothing, and refuses to be set with EINVAL. */
template <class T> class root {
public:
    /* The pointer to the object that the root leads to, or null. */
    ptr<T> get() const noexcept { return ptr<T>::from_word(state_ ? state_->word(address()) : 0); }

    /* Sets the root to an object, or to null: durable when this returns; on a logged heap with the next checkpoint, as all else.
     * EFAULT: the pointer leads to no object of this heap. EINVAL: the heap is closed. */
    result<void> try_set(ptr<T> object) {
        if (!state_) return failure{EINVAL, {}, "the root was moved from"};
        void *at = spandrel_heap_at(state_->handle, object.word());
        if (!at && object) return state_->failed();
        return state_->done(spandrel_heap_set_root(state_->handle, index_, at));
    }
#if SPANDREL_HEAP_EXCEPTIONS
    void set(ptr<T> object) { try_set(object).value(); }
#endif

    /* The object that the root leads to; it must lead to one. */
    T *operator->() const noexcept { return address(); }
    T &operator*() const noexcept { return *address(); }
    explicit operator bool() const noexcept { return address() != nullptr; }

    /* The root's number, 0 to 511. */
    unsigned index() const noexcept { return index_; }

    /* For heap::set_roots. A word that is no pointer stays an address outside the heap, which set_roots refuses. */
    spandrel_heap_root to(ptr<T> object) const noexcept {
        void *at = state_ ? state_->template at<T>(object.word()) : nullptr;
        return {nullptr, index_, at || !object ? at : reinterpret_cast<void *>(object.word())};
    }

private:
    friend class heap;
    root(std::shared_ptr<detail::state> state, unsigned index) noexcept : state_(std::move(state)), index_(index) {}

    T *address() const noexcept {
        return state_ && state_->handle ? static_cast<T *>(spandrel_heap_get_root(state_->handle, index_)) : nullptr;
    }

    std::shared_ptr<detail::state> state_;
    unsigned index_;
};

/* While it lives, p-> and *p mean this heap, in this thread. The program keeps the heap open until then. */
class use_heap {
public:
    explicit use_heap(const heap &used) noexcept : before_(std::exchange(detail::current, used.state_.get())) {}
    ~use_heap() { detail::current = before_; }
    use_heap(const use_heap &) = delete;
    use_heap &operator=(const use_heap &) = delete;

private:
    detail::state *before_;
};

} // namespace spandrel

#endif
