/* Objects that the C library itself gave out: through its internal names, and through its functions that
 * return memory for the caller to free. They must be freed, resized and measured rightly. */
#include <dirent.h>
#include <glob.h>
#include <locale.h>
#include <pwd.h>
#include <regex.h>
#include <search.h>
#include <wchar.h>

#include "abi.h"

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static void objects_of_the_c_library(void) {
    uint64_t seed = 9;
    for (int i = 0; i < 20000; i++) {
        size_t size = random_size(&seed, 1, i % 64 == 0 ? 2 * MIB : 16 * KIB);
        unsigned char *p;
        switch (i % 4) {
        case 0: p = __libc_malloc(size); break;
        case 1: p = __libc_calloc(1, size); break;
        case 2: p = __libc_memalign(256, size); break;
        default: p = __libc_realloc(__libc_malloc(1), size);
        }
        CHECK(p != NULL, "size %zu", size);
        CHECK(malloc_usable_size(p) >= size, "usable size of the C library's object: %zu < %zu", malloc_usable_size(p), size);
        fill_from(p, 0, size, size);
        switch (next_random(&seed) % 3) {
        case 0: free(p); break;
        case 1: {
            size_t grown = size * 2 + 1;
            p = realloc(p, grown);
            CHECK(p != NULL, "realloc");
            CHECK_PATTERN(p, size, size);
            fill_from(p, 0, grown, size);
            p = realloc(p, 1 + size / 2);
            CHECK_PATTERN(p, 1 + size / 2, size);
            free(p);
            break;
        }
        default: __libc_free(p);
        }
    }
}

static void functions_that_return_memory(void) {
    char *text = strdup("abc");
    CHECK(text && strcmp(text, "abc") == 0, "strdup");
    text = realloc(text, 100000);
    CHECK(strcmp(text, "abc") == 0, "realloc of strdup");
    free(text);
    text = strndup("abcdef", 3);
    CHECK(strcmp(text, "abc") == 0, "strndup");
    free(text);
    wchar_t *wide = wcsdup(L"wide");
    CHECK(wcscmp(wide, L"wide") == 0, "wcsdup");
    free(wide);

    int length = asprintf(&text, "%0*d", 200000, 7);
    CHECK(length == 200000 && strlen(text) == 200000 && text[199999] == '7', "asprintf");
    free(text);

    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    for (int i = 0; i < 200000; i++) fputs("0123456789", stream);
    fclose(stream);
    CHECK(size == 2000000 && text[1999999] == '9', "open_memstream: %zu", size);
    text = realloc(text, 10);
    CHECK(memcmp(text, "0123456789", 10) == 0, "realloc of open_memstream");
    free(text);

    /* getline grows a buffer of the program's. */
    stream = tmpfile();
    CHECK(stream != NULL, "tmpfile");
    for (int line = 1; line < 300000; line *= 7) fprintf(stream, "%0*d\n", line, 1);
    rewind(stream);
    char *buffer = malloc(1);
    size_t capacity = 1;
    ssize_t got;
    while ((got = getline(&buffer, &capacity, stream)) > 0)
        CHECK(buffer[got - 2] == '1' && capacity >= (size_t)got, "getline");
    free(buffer);
    fclose(stream);

    text = getcwd(NULL, 0);
    CHECK(text && text[0] == '/', "getcwd");
    free(text);
    text = realpath("/proc/self/../self/status", NULL);
    CHECK(text && text[0] == '/', "realpath");
    free(text);

    struct dirent **names = NULL;
    int count = scandir("/proc/self", &names, NULL, alphasort);
    CHECK(count > 10, "scandir");
    for (int i = 0; i < count; i++) free(names[i]);
    free(names);

    glob_t found;
    CHECK(glob("/proc/self/f*", 0, NULL, &found) == 0 && found.gl_pathc > 0, "glob");
    globfree(&found);

    regex_t expression;
    CHECK(regcomp(&expression, "^(a|b)*([0-9]{2,5})+$", REG_EXTENDED) == 0, "regcomp");
    CHECK(regexec(&expression, "abab12345", 0, NULL, 0) == 0, "regexec");
    regfree(&expression);

    CHECK(setlocale(LC_ALL, "C.UTF-8") != NULL, "setlocale");
    CHECK(setlocale(LC_ALL, "C") != NULL, "setlocale");
    CHECK(setenv("SPANDREL_TESTS_SOMETHING", "1", 1) == 0, "setenv");
    getpwuid(0);

    CHECK(hcreate(1000) != 0, "hcreate");
    hdestroy();

    struct passwd entry, *result = NULL;
    char space[4096];
    getpwuid_r(0, &entry, space, sizeof space, &result);
}

static int smaller(const void *a, const void *b) {
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    return x < y ? -1 : x > y;
}

/* qsort takes its scratch space from malloc when the array is large. */
static void sorting(void) {
    size_t count = 1000000;
    unsigned *numbers = malloc(count * sizeof *numbers);
    uint64_t seed = 1;
    for (size_t i = 0; i < count; i++) numbers[i] = (unsigned)next_random(&seed);
    qsort(numbers, count, sizeof *numbers, smaller);
    for (size_t i = 1; i < count; i++) CHECK(numbers[i - 1] <= numbers[i], "qsort at %zu", i);
    free(numbers);
}

int main(void) {
    objects_of_the_c_library();
    functions_that_return_memory();
    sorting();
    return 0;
}
