/* What errors say in C: the path, which is the log's where that is meant, the reason in words, the way out; and heaps that are opened or
 * made in one call.
 *   heap_errors PATH */
#include "heap.h"

#include <sys/resource.h>
#include <sys/stat.h>

/* What is added to the path of a heap for that of its log. */
#define LOG ".wal"

static char path[4096], log_path[4200], other[4200];

static void text_begins(const char *with, const char *and_has) {
    const char *text = spandrel_heap_error_text();
    if (strncmp(text, with, strlen(with)) != 0 || !strstr(text, and_has)) {
        fprintf(stderr, "'%s' does not begin with '%s' and have '%s'\n", text, with, and_has);
        _exit(1);
    }
}

static void limit(int resource, rlim_t bytes) {
    struct rlimit all;
    CHECK(getrlimit(resource, &all) == 0);
    all.rlim_cur = bytes;
    CHECK(setrlimit(resource, &all) == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 2 && spandrel_heap_error_text()[0] == 0);
    snprintf(path, sizeof path, "%s", arguments[1]);
    spandrel_heap_options options = heap_options();
    options.size = 1 << 20;
    options.medium = SPANDREL_HEAP_LOGGED;

    FAILS(ENOENT, !spandrel_heap_open(path, &options));
    text_begins(path, ": No such file or directory (os error 2)");
    snprintf(other, sizeof other, "%s/no/such", path);
    FAILS(ENOENT, !spandrel_heap_open_or_create(other, &options));
    text_begins(other, ": No such file");
    FAILS(EINVAL, !spandrel_heap_open(NULL, &options));

    /* Opened or made. */
    spandrel_heap *heap = spandrel_heap_open_or_create(path, &options);
    CHECK(heap && spandrel_heap_is_new(heap) == 1 && spandrel_heap_recovered(heap, NULL) == 0);
    FAILS(EEXIST, !spandrel_heap_start(path, &options));
    text_begins(path, ": File exists (os error 17); ");
    FAILS(EWOULDBLOCK, !spandrel_heap_open(path, &options));
    text_begins(path, "; close it there first");
    CHECK(strstr(spandrel_heap_error_text(), "this process"));
    void *object = spandrel_heap_malloc(heap, 100);
    CHECK(object && spandrel_heap_set_root(heap, 0, object) == 0);
    CHECK(spandrel_heap_close(heap) == 0);
    heap = spandrel_heap_open_or_create(path, &options);
    CHECK(heap && spandrel_heap_is_new(heap) == 0 && spandrel_heap_get_root(heap, 0));

    /* Read only: beside the one that is open, as of its last checkpoint. */
    CHECK(spandrel_heap_checkpoint(heap) == 0);
    spandrel_heap_options reading = heap_options();
    reading.read_only = 1;
    spandrel_heap *copy = spandrel_heap_open(path, &reading);
    CHECK(copy && spandrel_heap_get_root(copy, 0) && spandrel_heap_usable_size(copy, spandrel_heap_get_root(copy, 0)) == 112);
    FAILS(EROFS, !spandrel_heap_malloc(copy, 16));
    CHECK(strstr(spandrel_heap_error_text(), "read only"));
    FAILS(EROFS, spandrel_heap_set_root(copy, 0, NULL) == -1);
    FAILS(EROFS, spandrel_heap_free(copy, spandrel_heap_get_root(copy, 0)) == -1);
    CHECK(spandrel_heap_close(copy) == 0);
    FAILS(EROFS, !spandrel_heap_start(path, &reading));

    /* What is full, and the way out. */
    limit(RLIMIT_FSIZE, 4 << 20);
    FAILS(EFBIG, !spandrel_heap_malloc(heap, 8 << 20));
    CHECK(strstr(spandrel_heap_error_text(), "ulimit -f"));
    limit(RLIMIT_FSIZE, RLIM_INFINITY);
    CHECK(spandrel_heap_close(heap) == 0);
    options.limit = 2 << 20;
    heap = spandrel_heap_open(path, &options);
    CHECK(heap);
    FAILS(ENOMEM, !spandrel_heap_malloc(heap, 8 << 20));
    CHECK(strstr(spandrel_heap_error_text(), "limit"));
    CHECK(spandrel_heap_close(heap) == 0);

    /* Sums of pages: of a logged heap, in a file of their own. */
    spandrel_heap_options summed = options;
    summed.sums = 1;
    summed.medium = SPANDREL_HEAP_MAPPED;
    FAILS(ENOTSUP, !spandrel_heap_open(path, &summed));
    summed.medium = SPANDREL_HEAP_LOGGED;
    heap = spandrel_heap_open(path, &summed);
    CHECK(heap && spandrel_heap_verify_sums(heap) == 0 && spandrel_heap_close(heap) == 0);
    snprintf(other, sizeof other, "%s.sum", path);
    CHECK(access(other, F_OK) == 0);
    summed.sums = -1;
    heap = spandrel_heap_open(path, &summed);
    FAILS(ENODATA, spandrel_heap_verify_sums(heap) == -1);
    CHECK(spandrel_heap_close(heap) == 0 && access(other, F_OK) == -1);

    /* What is wrong with the log is said of the log. */
    snprintf(log_path, sizeof log_path, "%s" LOG, path);
    unlink(log_path);
    CHECK(symlink("/etc/passwd", log_path) == 0);
    FAILS(EBADMSG, !spandrel_heap_open(path, &options));
    text_begins(log_path, "and is none; move it away");

    /* Of a long path the end is there, and the reason. */
    memset(other, 'n', 600);
    strcpy(other + 600, "/a.heap");
    FAILS(ENAMETOOLONG, !spandrel_heap_open(other, &options));
    CHECK(strstr(spandrel_heap_error_text(), "nnn/a.heap: "));
    /* A text is cut between two characters. No byte of this path is a character: each is replaced by one of three bytes. */
    memset(other, 0xff, 200);
    other[200] = 0;
    FAILS(ENOENT, !spandrel_heap_open(other, &options));
    const char *text = spandrel_heap_error_text();
    CHECK(strlen(text) == 309 && strcmp(text + 306, "\xef\xbf\xbd") == 0);
    memset(other, 'x', 252);
    other[252] = 0;
    FAILS(ENAMETOOLONG, !spandrel_heap_start(other, &options));
    CHECK(strstr(spandrel_heap_error_text(), "252 bytes") && strstr(spandrel_heap_error_text(), "; take a shorter name"));
    return 0;
}
