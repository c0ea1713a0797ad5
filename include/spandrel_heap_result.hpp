/* spandrel_heap_result.hpp: how operations of spandrel_heap.hpp fail, with exceptions and without. Included by it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef SPANDREL_HEAP_RESULT_HPP
#define SPANDREL_HEAP_RESULT_HPP

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#if defined(__cpp_exceptions)
#define SPANDREL_HEAP_EXCEPTIONS 1
#include <system_error>
#else
#define SPANDREL_HEAP_EXCEPTIONS 0
#endif

namespace spandrel {

/* Why an operation failed. */
struct failure {
    int number = 0;     /* of errno, as spandrel_heap.h lists it for each function */
    std::string path;   /* the heap's file; empty: the heap is closed */
    std::string reason; /* in words */

    failure(int errno_, std::string path_, std::string reason_)
        : number(errno_), path(std::move(path_)), reason(std::move(reason_)) {}

    /* Of a function that makes, opens or copies a heap: its text begins with the path of the heap, or with that of another file, which is
     * the one that is meant. */
    static failure of_file(int errno_, std::string path_, std::string text_) {
        failure made(errno_, std::move(path_), std::move(text_));
        made.names_other_ = !made.drop(made.path + ": ") && !made.drop(made.short_path() + ": ");
        return made;
    }

    /* Path and reason in one line. */
    std::string text() const {
        if (path.empty() || names_other_) return reason;
        std::string shown = path; /* a zero byte would cut the line off */
        for (std::size_t at = 0; (at = shown.find('\0', at)) != std::string::npos;) shown.replace(at, 1, "\\0");
        return shown + ": " + reason;
    }

private:
    bool names_other_ = false; /* the reason begins with the path of another file */

    bool drop(const std::string &prefix) {
        const bool begins = reason.compare(0, prefix.size(), prefix) == 0;
        if (begins) reason.erase(0, prefix.size());
        return begins;
    }

    /* A long path as the library's text has it. */
    std::string short_path() const {
        constexpr std::size_t most = 120;
        return path.size() > most ? "\xe2\x80\xa6" + path.substr(path.size() - most) : path;
    }
};

#if SPANDREL_HEAP_EXCEPTIONS
/* A failure as an exception. code() compares with std::errc; what() has path and reason. */
class heap_error : public std::system_error {
public:
    explicit heap_error(failure why)
        : std::system_error(why.number, std::generic_category()),
          shared_(std::make_shared<const said>(said{why, why.text()})) {}

    const std::string &path() const noexcept { return shared_->why.path; }
    const std::string &reason() const noexcept { return shared_->why.reason; }
    const char *what() const noexcept override { return shared_->text.c_str(); }

private:
    struct said {
        failure why;
        std::string text;
    };
    std::shared_ptr<const said> shared_; /* copies of an exception must not throw */
};
#endif

/* A value, or the failure in its place. */
template <class T> class [[nodiscard]] result {
public:
    result(T value) : is_(std::in_place_index<0>, std::move(value)) {}
    result(failure why) : is_(std::in_place_index<1>, std::move(why)) {}

    explicit operator bool() const noexcept { return is_.index() == 0; }

    /* The value; there must be one. */
    T &operator*() & noexcept { return *std::get_if<0>(&is_); }
    const T &operator*() const & noexcept { return *std::get_if<0>(&is_); }
    T &&operator*() && noexcept { return std::move(*std::get_if<0>(&is_)); }
    T *operator->() noexcept { return std::get_if<0>(&is_); }
    const T *operator->() const noexcept { return std::get_if<0>(&is_); }

    /* The failure; there must be one. */
    const failure &error() const noexcept { return *std::get_if<1>(&is_); }

#if SPANDREL_HEAP_EXCEPTIONS
    /* The value. Throws heap_error if there is none. */
    T value() && {
        if (!*this) throw heap_error(error());
        return *std::move(*this);
    }
#endif

private:
    std::variant<T, failure> is_;
};

/* Success, or the failure. */
template <> class [[nodiscard]] result<void> {
public:
    result() = default;
    result(failure why) : why_(std::move(why)) {}

    explicit operator bool() const noexcept { return !why_; }
    const failure &error() const noexcept { return *why_; }

#if SPANDREL_HEAP_EXCEPTIONS
    /* Throws heap_error if there is a failure. */
    void value() const {
        if (why_) throw heap_error(*why_);
    }
#endif

private:
    std::optional<failure> why_;
};

} // namespace spandrel

#endif
