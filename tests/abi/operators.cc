// Every form of operator new and delete, called as the compiler calls them.
#include <new>
#include <string>
#include <vector>

#include "abi.h"

struct alignas(256) Wide {
    unsigned char bytes[512];
};

template <typename New, typename Delete>
static void pairs(const char *name, size_t alignment, New make, Delete unmake) {
    const size_t sizes[] = {0, 1, 8, 16, 33, 100, 1000, 4096, 40000, 200 * KIB, 5 * MIB};
    for (size_t size : sizes) {
        void *objects[8];
        for (size_t i = 0; i < 8; i++) {
            objects[i] = make(size);
            CHECK(objects[i] != nullptr, "%s(%zu)", name, size);
            CHECK(is_aligned(objects[i], alignment), "%s(%zu) = %p", name, size, objects[i]);
            for (size_t j = 0; j < i; j++) CHECK(objects[i] != objects[j], "%s gave an object twice", name);
            fill_from(objects[i], 0, size, i);
        }
        for (size_t i = 0; i < 8; i++) {
            CHECK_PATTERN(objects[i], size, i);
            unmake(objects[i], size);
        }
    }
    unmake(nullptr, 0);
}

int main() {
    using std::align_val_t;
    using std::nothrow;
    pairs("new", 16, [](size_t n) { return ::operator new(n); }, [](void *p, size_t) { ::operator delete(p); });
    pairs("new, sized delete", 16, [](size_t n) { return ::operator new(n); }, [](void *p, size_t n) { ::operator delete(p, n); });
    pairs("new nothrow", 16, [](size_t n) { return ::operator new(n, nothrow); }, [](void *p, size_t) { ::operator delete(p, nothrow); });
    pairs("new[]", 16, [](size_t n) { return ::operator new[](n); }, [](void *p, size_t) { ::operator delete[](p); });
    pairs("new[], sized delete", 16, [](size_t n) { return ::operator new[](n); }, [](void *p, size_t n) { ::operator delete[](p, n); });
    pairs("new[] nothrow", 16, [](size_t n) { return ::operator new[](n, nothrow); }, [](void *p, size_t) { ::operator delete[](p, nothrow); });
    for (size_t a : {(size_t)1, (size_t)8, (size_t)16, (size_t)64, (size_t)256, (size_t)4096, 64 * KIB, 2 * MIB}) {
        align_val_t al = align_val_t(a);
        pairs("aligned new", a, [=](size_t n) { return ::operator new(n, al); }, [=](void *p, size_t) { ::operator delete(p, al); });
        pairs("aligned new, sized delete", a, [=](size_t n) { return ::operator new(n, al); }, [=](void *p, size_t n) { ::operator delete(p, n, al); });
        pairs("aligned new nothrow", a, [=](size_t n) { return ::operator new(n, al, nothrow); }, [=](void *p, size_t) { ::operator delete(p, al, nothrow); });
        pairs("aligned new[]", a, [=](size_t n) { return ::operator new[](n, al); }, [=](void *p, size_t) { ::operator delete[](p, al); });
        pairs("aligned new[], sized delete", a, [=](size_t n) { return ::operator new[](n, al); }, [=](void *p, size_t n) { ::operator delete[](p, n, al); });
        pairs("aligned new[] nothrow", a, [=](size_t n) { return ::operator new[](n, al, nothrow); }, [=](void *p, size_t) { ::operator delete[](p, al, nothrow); });
    }

    // Through expressions, with the compiler's own choice of the form.
    for (int i = 0; i < 1000; i++) {
        Wide *one = new Wide, *many = new Wide[3];
        CHECK(is_aligned(one, 256) && is_aligned(many, 256), "new of an over-aligned type");
        delete one;
        delete[] many;
        std::string *text = new std::string(1000, 'x');
        std::vector<std::string> *list = new std::vector<std::string>(10, *text);
        CHECK((*list)[9].size() == 1000, "vector of strings");
        delete text;
        delete list;
    }

    // C and C++ may meet: Linux programs do free what new made, and the reverse.
    for (size_t size = 1; size < MIB; size *= 3) {
        free(::operator new(size));
        ::operator delete(malloc(size));
        free(::operator new(size, align_val_t(512)));
        void *p = ::operator new(size);
        CHECK(malloc_usable_size(p) >= size, "usable size of new(%zu)", size);
        free(realloc(p, size * 2));
    }
    return 0;
}
