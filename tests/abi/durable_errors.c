/* Errors have a number, the reason, and the way out.
 *   durable_errors DIRECTORY */
#include "durable.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const char *directory;
static spandrel_durable *other;

static void says(const char *word) {
    const char *text = spandrel_durable_error_text();
    if (!strstr(text, word)) {
        fprintf(stderr, "\"%s\" is not in \"%s\"\n", word, text);
        _exit(1);
    }
}

static spandrel_durable *open_at(const char *suffix) {
    char path[4096];
    snprintf(path, sizeof path, "%s%s", directory, suffix);
    return spandrel_durable_open(path, NULL, NULL, NULL);
}

static int nothing(spandrel_durable *state, void *argument) {
    (void)state, (void)argument;
    return 0;
}

static int refuses(spandrel_durable *state, void *argument) {
    (void)argument;
    CHECK(spandrel_durable_calloc(state, 1, 100));
    return -7;
}

/* Within a read nothing is changed, and no other command begins. */
static int reads(spandrel_durable *state, void *argument) {
    (void)argument;
    FAILS(EROFS, !spandrel_durable_malloc(state, 10));
    says("reads");
    FAILS(EROFS, spandrel_durable_memset(state, spandrel_durable_base(state), 0, 8) == -1);
    FAILS(EROFS, spandrel_durable_set_root(state, "x", NULL) == -1);
    FAILS(EDEADLK, spandrel_durable_write(state, nothing, NULL) == -1);
    says("another");
    FAILS(EDEADLK, spandrel_durable_read(state, nothing, NULL) == -1);
    FAILS(EDEADLK, spandrel_durable_read(other, nothing, NULL) == -1);
    FAILS(EDEADLK, spandrel_durable_close(state) == -1);
    FAILS(EDEADLK, !open_at(".third"));
    spandrel_durable_figures figures = {.struct_size = sizeof figures};
    FAILS(EDEADLK, spandrel_durable_get_figures(state, &figures) == -1);
    FAILS(EINVAL, !spandrel_durable_root(state, ""));
    return 3;
}

static int writes(spandrel_durable *state, void *argument) {
    (void)argument;
    FAILS(EINVAL, !spandrel_durable_malloc(other, 10));
    says("another state");
    FAILS(EINVAL, !spandrel_durable_malloc(NULL, 10));
    FAILS(EINVAL, !spandrel_durable_aligned_alloc(state, 3, 10));
    FAILS(EINVAL, !spandrel_durable_malloc(state, SIZE_MAX));
    FAILS(EINVAL, !spandrel_durable_calloc(state, SIZE_MAX / 2, 3));
    char *object = spandrel_durable_malloc(state, 100);
    CHECK(object && spandrel_durable_usable_size(state, object) >= 100);
    FAILS(EFAULT, spandrel_durable_free(state, object + 16) == -1);
    FAILS(EFAULT, spandrel_durable_free(state, &object) == -1);
    FAILS(EFAULT, spandrel_durable_set_root(state, "x", object + 1) == -1);
    FAILS(EFAULT, spandrel_durable_wrote(state, &object, 8) == -1);
    says("do not lie in the state");
    char *end = (char *)spandrel_durable_base(state) + spandrel_durable_bytes(state);
    FAILS(EFAULT, spandrel_durable_wrote(state, end - 8, 9) == -1);
    FAILS(EFAULT, spandrel_durable_store(state, end, &object, 8) == -1);
    FAILS(EINVAL, spandrel_durable_store(state, object, NULL, 8) == -1);
    CHECK(spandrel_durable_wrote(state, end - 8, 8) == 0);
    FAILS(EINVAL, spandrel_durable_set_root(state, "a name of more than forty bytes, which no root has", object) == -1);
    FAILS(EINVAL, spandrel_durable_set_root(state, NULL, object) == -1);
    FAILS(EINVAL, spandrel_durable_remove_root(state, "missing") == -1);
    CHECK(spandrel_durable_set_root(state, "x", object) == 0);
    CHECK(spandrel_durable_root(state, "x") == object && !spandrel_durable_root(state, "missing"));
    CHECK(spandrel_durable_remove_root(state, "x") == 0 && !spandrel_durable_root(state, "x"));
    char *moved = spandrel_durable_realloc(state, object, 5000);
    CHECK(moved && spandrel_durable_realloc(state, moved, 0) == NULL);
    FAILS(EFAULT, spandrel_durable_free(state, moved) == -1);
    CHECK(spandrel_durable_free(state, NULL) == 0);
    return 4;
}

/* Allocates until the state is full. */
static int fills(spandrel_durable *state, void *argument) {
    (void)argument;
    for (;;) {
        errno = 0;
        if (!spandrel_durable_malloc(state, 100000)) break;
    }
    CHECK(errno == ENOMEM);
    says("limit");
    return -1;
}

static void outside(spandrel_durable *db) {
    FAILS(EROFS, !spandrel_durable_malloc(db, 10));
    says("spandrel_durable_write");
    FAILS(EROFS, spandrel_durable_free(db, db) == -1);
    FAILS(EROFS, spandrel_durable_wrote(db, spandrel_durable_base(db), 8) == -1);
    FAILS(EROFS, spandrel_durable_set_root(db, "x", NULL) == -1);
    CHECK(!spandrel_durable_root(db, "x"));
    FAILS(EINVAL, spandrel_durable_write(NULL, nothing, NULL) == -1);
    FAILS(EINVAL, spandrel_durable_write(db, NULL, NULL) == -1);
    FAILS(EINVAL, spandrel_durable_close(NULL) == -1);
    FAILS(EINVAL, spandrel_durable_get_report(db, NULL) == -1);
    FAILS(ECANCELED, spandrel_durable_write(db, refuses, NULL) == -1);
    says("-7");
}

static void child(spandrel_durable *db) {
    FAILS(EPERM, spandrel_durable_read(db, nothing, NULL) == -1);
    FAILS(EPERM, spandrel_durable_write(db, nothing, NULL) == -1);
    says("child of a fork");
    FAILS(EPERM, !spandrel_durable_root(db, "x"));
    FAILS(EPERM, spandrel_durable_close(db) == -1);
    FAILS(EWOULDBLOCK, !open_at(""));
}

static void openings(void) {
    FAILS(EINVAL, !spandrel_durable_open(NULL, NULL, NULL, NULL));
    spandrel_durable_options options = durable_options();
    const size_t blocks[] = {1, 48, 256, SIZE_MAX};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        options.block_size = blocks[i];
        FAILS(EINVAL, !spandrel_durable_open(directory, &options, NULL, NULL));
        says("block_size is none of 16, 32, 64 and 128");
    }
    options.block_size = 0;
    options.clients = 1025;
    FAILS(EINVAL, !spandrel_durable_open(directory, &options, NULL, NULL));
    says("clients is more than 1024");
    options.clients = 0;
    options.struct_size = 0;
    FAILS(EINVAL, !spandrel_durable_open(directory, &options, NULL, NULL));
    options = durable_options();
    options.block_size = 33;
    FAILS(EINVAL, !spandrel_durable_open(directory, &options, NULL, NULL));
    struct {
        spandrel_durable_options known;
        uint64_t later;
    } later;
    memset(&later, 0, sizeof later);
    later.known.struct_size = sizeof later;
    later.later = 1;
    FAILS(EINVAL, !spandrel_durable_open(directory, &later.known, NULL, NULL));
    says("version");
    later.later = 0;
    later.known.layout = 5;
    spandrel_durable *db = spandrel_durable_open(directory, &later.known, NULL, NULL);
    CHECK(db && durable_report(db).created && spandrel_durable_close(db) == 0);
    later.known.layout = 6;
    FAILS(EPROTOTYPE, !spandrel_durable_open(directory, &later.known, NULL, NULL));
    says("layout");
    FAILS(ENOENT, !open_at("/missing/state"));
    says("/missing/state");
    FAILS(ECANCELED, !spandrel_durable_open(directory, NULL, refuses, NULL));
    says(directory);
    char path[4096];
    snprintf(path, sizeof path, "%s.file", directory);
    int file = open(path, O_CREAT | O_WRONLY, 0600);
    CHECK(file >= 0 && close(file) == 0);
    FAILS(ENOTDIR, !open_at(".file"));
    /* A directory that others may write to. */
    snprintf(path, sizeof path, "%s.shared", directory);
    CHECK(mkdir(path, 0700) == 0 && chmod(path, 0777) == 0);
    FAILS(EACCES, !open_at(".shared"));
    says("chmod 700");
    /* Files that are none of ours. */
    snprintf(path, sizeof path, "%s.foreign", directory);
    CHECK(mkdir(path, 0700) == 0);
    snprintf(path, sizeof path, "%s.foreign/state", directory);
    file = open(path, O_CREAT | O_WRONLY, 0600);
    for (int i = 0; i < 1000; i++) CHECK(write(file, "This is a text, and no state of ours.\n", 38) == 38);
    CHECK(close(file) == 0);
    FAILS(EINVAL, !open_at(".foreign"));
    snprintf(path, sizeof path, "%s.lone", directory);
    CHECK(mkdir(path, 0700) == 0);
    snprintf(path, sizeof path, "%s.lone/log", directory);
    file = open(path, O_CREAT | O_WRONLY, 0600);
    CHECK(file >= 0 && close(file) == 0);
    FAILS(EBADMSG, !open_at(".lone"));
    says("there is a log and no state");
    if (geteuid() != 0) {
        snprintf(path, sizeof path, "%s.closed", directory);
        CHECK(mkdir(path, 0500) == 0);
        FAILS(EACCES, !open_at(".closed"));
        FAILS(EACCES, !open_at(".closed/state"));
    }
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    directory = arguments[1];
    CHECK(strcmp(spandrel_durable_error_text(), "") == 0);
    openings();
    spandrel_durable *db = open_at("");
    other = open_at(".other");
    CHECK(db && other && spandrel_durable_base(db) != spandrel_durable_base(other));
    FAILS(EWOULDBLOCK, !open_at(""));
    says("has the state open");
    outside(db);
    CHECK(spandrel_durable_read(db, reads, NULL) == 3);
    CHECK(spandrel_durable_write(db, writes, NULL) == 4);
    CHECK(spandrel_durable_medium(db)[0]);
    spandrel_durable_figures figures = {.struct_size = sizeof figures};
    CHECK(spandrel_durable_get_figures(db, &figures) == 0 && figures.struct_size == sizeof figures);
    CHECK(figures.batches > 0 && figures.runs >= figures.batches && figures.bytes > figures.runs);
    /* Of a program with a shorter structure. */
    uint64_t before = figures.bytes;
    figures.struct_size = offsetof(spandrel_durable_figures, bytes);
    figures.bytes = 7;
    CHECK(spandrel_durable_get_figures(db, &figures) == 0 && figures.bytes == 7 && before != 7);
    pid_t process = fork();
    CHECK(process >= 0);
    if (process == 0) {
        child(db);
        _exit(0);
    }
    int status;
    CHECK(waitpid(process, &status, 0) == process && status == 0);
    CHECK(spandrel_durable_write(db, nothing, NULL) == 0);
    /* Something lies at the state's addresses: the next process that has it there is told, and loses nothing. */
    void *base = spandrel_durable_base(db);
    CHECK(spandrel_durable_close(db) == 0);
    CHECK(mmap(base, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == base);
    FAILS(EADDRINUSE, !open_at(""));
    CHECK(munmap(base, 4096) == 0);
    db = open_at("");
    CHECK(db && spandrel_durable_base(db) == base && spandrel_durable_close(db) == 0);
    spandrel_durable_options options = durable_options();
    options.limit = 4 << 20;
    char path[4096];
    snprintf(path, sizeof path, "%s.small", directory);
    db = spandrel_durable_open(path, &options, NULL, NULL);
    FAILS(ECANCELED, spandrel_durable_write(db, fills, NULL) == -1);
    CHECK(spandrel_durable_write(db, writes, NULL) == 4);
    CHECK(spandrel_durable_close(db) == 0 && spandrel_durable_close(other) == 0);
    return 0;
}
