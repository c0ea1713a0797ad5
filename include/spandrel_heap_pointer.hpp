/* spandrel_heap_pointer.hpp: pointers that lie in a heap, and how recovery finds them. Included by spandrel_heap.hpp.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef SPANDREL_HEAP_POINTER_HPP
#define SPANDREL_HEAP_POINTER_HPP

#include <spandrel_heap.h>
#include <spandrel_heap_result.hpp>

#include <array>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace spandrel {

namespace detail {

constexpr unsigned tag_shift = 48;
constexpr std::uint64_t tag = 0x50a7; /* in the upper 16 bits of a word that is a pointer */
constexpr std::uint64_t offset_mask = (std::uint64_t{1} << tag_shift) - 1;

/* The root that a type was declared for. */
struct declared {
    std::string name; /* empty: the root of the number */
    unsigned index;
    spandrel_heap_trace trace;
    std::size_t bytes;
    std::uint64_t layout;

    bool same_root(const declared &other) const { return name == other.name && (!name.empty() || index == other.index); }

    spandrel_heap_root_type c() const {
        return {index, trace, bytes, name.empty() ? nullptr : name.c_str(), layout};
    }
};

/* An open heap. The address is the same for as long as the heap or a root of it lives. */
struct state {
    spandrel_heap *handle = nullptr; /* nullptr: closed */
    char *base = nullptr;
    std::atomic<std::size_t> bytes{0}; /* a lower bound: a heap grows */
    std::string path;
    std::vector<declared> types;

    /* Takes the handle, to close it: no pointer leads to an object afterwards. */
    spandrel_heap *taken() noexcept {
        bytes = 0;
        return std::exchange(handle, nullptr);
    }

    bool holds(std::size_t offset, std::size_t length) noexcept {
        std::size_t known = bytes.load(std::memory_order_relaxed);
        if (offset > known || length > known - offset) {
            known = handle ? spandrel_heap_bytes(handle) : 0;
            bytes.store(known, std::memory_order_relaxed);
        }
        return offset <= known && length <= known - offset;
    }

    template <class T> T *at(std::uint64_t word) noexcept {
        const std::size_t offset = word & offset_mask;
        const bool is_pointer = word >> tag_shift == tag && holds(offset, sizeof(T));
        return is_pointer ? reinterpret_cast<T *>(base + offset) : nullptr;
    }

    std::uint64_t word(const void *object) const noexcept {
        if (!object) return 0;
        return tag << tag_shift | static_cast<std::uint64_t>(static_cast<const char *>(object) - base);
    }

    failure failed() const {
        const int number = errno;
        if (!handle) return {EINVAL, path, "the heap is closed"};
        return {number, path, spandrel_heap_error_text()};
    }

    result<void> done(int outcome) const {
        if (outcome == 0) return {};
        return failed();
    }
};

/* Whether C would take less of a text than all of it. */
inline bool is_cut(const std::string &text) { return text.find('\0') != std::string::npos; }

/* The failure for such a path or name. */
inline failure cut(const std::string &path) { return {EINVAL, path, "a path or name has a zero byte, which would cut it off"}; }

inline thread_local state *current = nullptr;

} // namespace detail

/* A pointer to an object of a heap: the word of spandrel_heap_offset. It holds wherever the heap is mapped, and is the same as PPtr
 * in Rust. heap.get(p) is the address; p-> and *p are short for it in the scope of a spandrel::use_heap. */
template <class T> class ptr {
public:
    constexpr ptr() noexcept = default;
    constexpr ptr(std::nullptr_t) noexcept {}

    /* From the word that is stored. */
    static constexpr ptr from_word(std::uint64_t word) noexcept {
        ptr made;
        made.word_ = word;
        return made;
    }
    constexpr std::uint64_t word() const noexcept { return word_; }
    constexpr explicit operator bool() const noexcept { return word_ != 0; }
    template <class U> constexpr ptr<U> cast() const noexcept { return ptr<U>::from_word(word_); }

    /* The object in the heap of the innermost use_heap of this thread. The pointer leads to an object of that heap. */
    T *operator->() const noexcept { return address(); }
    T &operator*() const noexcept { return *address(); }

    friend constexpr bool operator==(ptr one, ptr two) noexcept { return one.word_ == two.word_; }
    friend constexpr bool operator!=(ptr one, ptr two) noexcept { return one.word_ != two.word_; }
    friend constexpr bool operator<(ptr one, ptr two) noexcept { return one.word_ < two.word_; }

private:
    T *address() const noexcept {
        assert(detail::current && "no use_heap in this thread");
        T *at = detail::current->at<T>(word_);
        assert(at && "null, or no pointer to this heap");
        return at;
    }

    std::uint64_t word_ = 0;
};
static_assert(sizeof(ptr<int>) == 8 && std::is_trivially_copyable_v<ptr<int>> && std::is_standard_layout_v<ptr<int>>);

/* What a trace function calls, with the pointers of the object. */
class tracer {
public:
    explicit tracer(spandrel_heap_tracer *c) noexcept : c_(c) {}

    /* There is a pointer to one T. */
    template <class T> void pointer(const ptr<T> &slot) const;
    /* There is a pointer to `count` T, one behind the other; to as many as the object has room for at most. */
    template <class T> void array(const ptr<T> &slot, std::size_t count) const;
    /* There are bytes of which every word is to be looked at. */
    void words(const void *address, std::size_t length) const { spandrel_heap_trace_words(c_, address, length); }
    /* There is a member: a pointer, an array of members, or a structure with pointers of its own. */
    template <class T> void member(const T &value) const;

private:
    spandrel_heap_tracer *c_;
};

/* Where the pointers of a T are. Numbers and enumerations have none; of other types every word is looked at, unless the program says
 * more:
 *   template <> struct spandrel::traced<node> : spandrel::pointers<&node::next, &node::text> {};
 *   template <> struct spandrel::traced<text> : spandrel::pointers<> {};                                  (none)
 * or with a structure of its own that has has_pointers and trace(const T &, spandrel::tracer). A member
 *   static constexpr std::uint64_t layout = 2;
 * numbers the type's layout; without it the number is made of size, alignment and the places of the pointers. */
template <class T> struct traced {
    static constexpr bool has_pointers = !std::is_arithmetic_v<T> && !std::is_enum_v<T>;
    static void trace(const T &value, tracer to) { to.words(&value, sizeof value); }
};
template <class T> struct traced<ptr<T>> {
    static constexpr bool has_pointers = true;
    static void trace(const ptr<T> &value, tracer to) { to.pointer(value); }
};
template <class T, std::size_t N> struct traced<T[N]> {
    static constexpr bool has_pointers = traced<T>::has_pointers;
    static void trace(const T (&values)[N], tracer to) {
        for (const T &value : values) to.member(value);
    }
};
template <class T, std::size_t N> struct traced<std::array<T, N>> {
    static constexpr bool has_pointers = traced<T>::has_pointers;
    static void trace(const std::array<T, N> &values, tracer to) {
        for (const T &value : values) to.member(value);
    }
};

namespace detail {

/* FNV-1a, a word at a time. */
constexpr std::uint64_t mixed(std::uint64_t code, std::uint64_t word) {
    for (int byte = 0; byte < 8; byte++) code = (code ^ (word >> (8 * byte) & 0xff)) * 0x100000001b3u;
    return code;
}

template <class M> struct member_of;
template <class C, class T> struct member_of<T C::*> {
    using type = T;
    static std::uint64_t place(T C::*member) {
        alignas(C) static const unsigned char room[sizeof(C)] = {};
        const unsigned char *at = reinterpret_cast<const unsigned char *>(&(reinterpret_cast<const C *>(room)->*member));
        return static_cast<std::uint64_t>(at - room);
    }
};

template <class T> void trace(const void *object, spandrel_heap_tracer *c) {
    traced<T>::trace(*static_cast<const T *>(object), tracer(c));
}

template <class T> constexpr spandrel_heap_trace trace_of() {
    if constexpr (traced<T>::has_pointers) return trace<T>;
    else return nullptr;
}

template <class T, class = void> struct places {
    static std::uint64_t mix(std::uint64_t code) { return code; }
};
template <class T> struct places<T, decltype(void(traced<T>::places(0)))> {
    static std::uint64_t mix(std::uint64_t code) { return traced<T>::places(code); }
};

template <class T, class = void> struct layout {
    static std::uint64_t number() { return places<T>::mix(mixed(mixed(0xcbf29ce484222325u, sizeof(T)), alignof(T))) | 1; }
};
template <class T> struct layout<T, decltype(void(traced<T>::layout))> {
    static std::uint64_t number() { return traced<T>::layout; }
};

template <class T> constexpr bool storable =
    std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T> && std::is_standard_layout_v<T>;

template <class T> declared type(std::string name, unsigned index) {
    static_assert(storable<T>, "objects of a heap are of standard layout and trivially copyable");
    return {std::move(name), index, trace_of<T>(), sizeof(T), layout<T>::number()};
}

template <class T> struct same {
    using type = T;
};

} // namespace detail

/* The pointers of a structure are these members. See traced. */
template <auto... Members> struct pointers {
    static constexpr bool has_pointers = sizeof...(Members) > 0;
    template <class T> static void trace(const T &value, tracer to) { (to.member(value.*Members), ...); }
    static std::uint64_t places(std::uint64_t code) {
        ((code = detail::mixed(code, detail::member_of<decltype(Members)>::place(Members))), ...);
        return code;
    }
};
template <> struct pointers<> {
    static constexpr bool has_pointers = false;
    template <class T> static void trace(const T &, tracer) {}
    static std::uint64_t places(std::uint64_t code) { return code; }
};

template <class T> void tracer::pointer(const ptr<T> &slot) const {
    spandrel_heap_trace_pointer(c_, &slot, detail::trace_of<T>(), sizeof(T));
}
template <class T> void tracer::array(const ptr<T> &slot, std::size_t count) const {
    spandrel_heap_trace_array(c_, &slot, detail::trace_of<T>(), sizeof(T), count);
}
template <class T> void tracer::member(const T &value) const {
    if constexpr (traced<T>::has_pointers) traced<T>::trace(value, *this);
}

} // namespace spandrel

#endif
