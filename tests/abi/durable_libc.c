// What the C library keeps for itself is the process's, also where a command is the first to need it and is undone; what its functions allocate for their caller is the state's.
//   durable_libc DIRECTORY results|<a name of `kinds`>
#include "durable.h"

#include <argz.h>
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <glob.h>
#include <grp.h>
#include <iconv.h>
#include <langinfo.h>
#include <locale.h>
#include <netdb.h>
#include <pthread.h>
#include <pwd.h>
#include <regex.h>
#include <search.h>
#include <signal.h>
#include <time.h>
#include <wchar.h>
#include <wordexp.h>

static spandrel_durable *db;

static int is_inside(const volatile void *object) {
    uintptr_t at = (uintptr_t)object, base = (uintptr_t)spandrel_durable_base(db);
    return at >= base && at - base < spandrel_durable_bytes(db);
}

// Converts by what is open, or is opened now and stays so.
static void convert(iconv_t *open, const char *set, size_t bytes) {
    if (!*open) *open = iconv_open(set, "UTF-8");
    CHECK(*open && *open != (iconv_t)-1 && iconv(*open, NULL, NULL, NULL, NULL) == 0);
    char text[] = "caf\303\251", out[64], *from = text, *to = out;
    size_t left = 5, room = sizeof out;
    CHECK(iconv(*open, &from, &left, &to, &room) == 0 && left == 0 && sizeof out - room == bytes);
}

static void conversions(void) {
    // The files of conversions allocate as well.
    static iconv_t kept;
    convert(&kept, "UTF-16", 10);
    wchar_t wide[64];
    char narrow[64];
    CHECK(mbstowcs(wide, "a text", 64) == 6 && wcstombs(narrow, wide, 64) == 6 && strcmp(narrow, "a text") == 0);
    CHECK(swprintf(wide, 64, L"%s %d", "number", 7) == 8);
    FILE *none = fopen("/dev/null", "w");
    CHECK(none && fwprintf(none, L"%s %ls\n", "a text", wide) > 0 && fclose(none) == 0);
    static const char *const sets[] = {"UTF-16", "ISO-8859-15", "UTF-32", "CP1252"};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        iconv_t both = iconv_open(sets[i], "UTF-8");
        CHECK(both != (iconv_t)-1);
        char text[] = "caf\303\251", *from = text, *to = narrow;
        size_t left = 5, room = sizeof narrow;
        CHECK(iconv(both, &from, &left, &to, &room) != (size_t)-1 && left == 0);
        CHECK(iconv_close(both) == 0);
    }
}

static void locales(void) {
    CHECK(setlocale(LC_ALL, "C.UTF-8"));
    char text[100];
    time_t now = 86400 * 365;
    CHECK(strftime(text, sizeof text, "%A %c %EY %Ob", gmtime(&now)) > 0);
    CHECK(strcoll("abc", "abd") < 0 && strxfrm(text, "abc", sizeof text) > 0);
    locale_t other = newlocale(LC_ALL_MASK, "C.UTF-8", (locale_t)0);
    CHECK(other && strcoll_l("b", "a", other) > 0 && strcmp(nl_langinfo_l(CODESET, other), "UTF-8") == 0);
    locale_t before = uselocale(other);
    wchar_t wide[10];
    CHECK(mbstowcs(wide, "\303\251", 10) == 1);
    uselocale(before);
    freelocale(other);
    CHECK(setlocale(LC_ALL, "C"));
    CHECK(setlocale(LC_CTYPE, "C.UTF-8") && strstr(setlocale(LC_ALL, NULL), "C.UTF-8"));
}

static void errors(void) {
    CHECK(!dlopen("/no/such/library.so", RTLD_NOW) && strstr(dlerror(), "no/such"));
    CHECK(!dlsym(RTLD_DEFAULT, "no_such_function") && strstr(dlerror(), "no_such_function"));
    CHECK(strstr(strerror(12345), "12345") && strsignal(200));
}

static FILE *kept_open, *kept_memory;
static char *kept_text;
static size_t kept_bytes;

static void files(void) {
    printf("a line\n");
    fflush(stdout);
    char *line = NULL;
    size_t room = 0;
    CHECK(getline(&line, &room, stdin) >= -1);
    free(line);
    if (!kept_open) kept_open = fopen("/proc/self/status", "r");
    char text[100];
    CHECK(kept_open && fgets(text, sizeof text, kept_open) && ungetc('x', kept_open) == 'x');
    if (!kept_memory) kept_memory = open_memstream(&kept_text, &kept_bytes);
    for (int i = 0; i < 1000; i++) CHECK(fprintf(kept_memory, "line %d\n", i) > 0);
    FILE *other = tmpfile();
    CHECK(other && fputs("a text", other) >= 0);
    rewind(other);
    CHECK(fgets(text, sizeof text, other) && strcmp(text, "a text") == 0 && fclose(other) == 0);
}

static void names(void) {
    struct passwd *user = getpwnam("root");
    CHECK(user && user->pw_uid == 0 && getpwuid(0));
    struct group *group = getgrgid(0);
    CHECK(group && getgrnam(group->gr_name));
    struct passwd other, *found;
    char buffer[2000];
    CHECK(getpwnam_r("root", &other, buffer, sizeof buffer, &found) == 0 && found == &other);
    CHECK(!getpwnam("no-such-user"));
    struct hostent *host = gethostbyname("127.0.0.1");
    CHECK(host && host->h_length == 4);
    gethostbyname("localhost");
    getservbyname("http", "tcp");
    getprotobyname("tcp");
    struct addrinfo *all = NULL;
    CHECK(getaddrinfo("127.0.0.1", "80", NULL, &all) == 0 && all);
    freeaddrinfo(all);
}

static void times(void) {
    time_t now = 86400 * 365;
    CHECK(setenv("TZ", "CET-1CEST", 1) == 0);
    tzset();
    CHECK(localtime(&now)->tm_hour == 1 && ctime(&now) && mktime(localtime(&now)) == now);
    CHECK(unsetenv("TZ") == 0);
    CHECK(localtime(&now));
}

struct wide {
    int number;
    char rest[200];
};

static int by_number(const void *a, const void *b) {
    return ((const struct wide *)a)->number - ((const struct wide *)b)->number;
}

static void sorting(void) {
    static struct wide all[3000];
    for (int i = 0; i < 3000; i++) all[i].number = (i * 7919) % 3000;
    qsort(all, 3000, sizeof *all, by_number);
    for (int i = 0; i < 3000; i++) CHECK(all[i].number == i);
}

static void nothing(void) {
}

static void nothing_by(int status, void *argument) {
    (void)status;
    (void)argument;
}

static void ends(void) {
    // The first ones have room of their own.
    for (int i = 0; i < 100; i++) CHECK(atexit(nothing) == 0 && on_exit(nothing_by, NULL) == 0);
    CHECK(at_quick_exit(nothing) == 0 && pthread_atfork(nothing, nothing, nothing) == 0);
}

static void keys(void) {
    static pthread_key_t keys[100];
    static int count;
    for (int end = count < 60 ? count + 20 : count; count < end; count++) CHECK(pthread_key_create(&keys[count], NULL) == 0);
    for (int i = 0; i < count; i++) CHECK(pthread_setspecific(keys[i], (void *)&keys[i]) == 0 && pthread_getspecific(keys[i]) == &keys[i]);
}

static void libraries(void) {
    void *library = dlopen("libz.so.1", RTLD_NOW);
    CHECK(library && dlsym(library, "crc32"));
    unsigned long (*crc)(unsigned long, const unsigned char *, unsigned);
    *(void **)&crc = dlsym(library, "crc32");
    CHECK(crc(0, (const unsigned char *)"123456789", 9) == 0xcbf43926);
    static int is_closed;
    // It stays loaded afterwards.
    if (is_closed++ % 2 == 0) CHECK(dlclose(library) == 0);
}

static void traces(void) {
    void *at[10];
    int depth = backtrace(at, 10);
    CHECK(depth > 1);
    char **text = backtrace_symbols(at, depth);
    CHECK(text && text[0]);
    free(text);
}

static regex_t line;

static void expressions(void) {
    // Compiled outside of commands, by `main`.
    regmatch_t found[3];
    CHECK(regexec(&line, "name-1 = a longer value; and more of it", 3, found, 0) == 0 && found[1].rm_so == 0 && found[1].rm_eo == 6);
    CHECK(regexec(&line, "= none", 3, found, 0) == REG_NOMATCH);
}

static void tables(void) {
    // The table stays where the first command is undone, and the next use goes on with it.
    static int round;
    CHECK(round % 2 == 1 || hcreate(500));
    for (int i = 0; i < 26; i++) {
        static char names[26][2];
        names[i][0] = 'a' + i;
        ENTRY entry = {names[i], NULL};
        CHECK(hsearch(entry, round % 2 == 1 ? FIND : ENTER));
    }
    if (round++ % 2 == 1) hdestroy();
}

static void environment(void) {
    static char text[] = "SPANDREL_TEST_PUT=value";
    static int number;
    char name[40];
    for (int i = 0; i < 50; i++) {
        snprintf(name, sizeof name, "SPANDREL_TEST_%d", number++ % 120);
        CHECK(setenv(name, "a value that is longer than its name", 1) == 0 && getenv(name));
    }
    CHECK(putenv(text) == 0 && getenv("SPANDREL_TEST_PUT") && unsetenv("SPANDREL_TEST_1") == 0);
}

static void processes(void) {
    FILE *other = popen("echo of another process", "r");
    char text[100];
    CHECK(other && fgets(text, sizeof text, other) && strcmp(text, "of another process\n") == 0 && pclose(other) == 0);
    // It hears signals as the program does.
    sigset_t mask;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &mask) == 0 && !sigismember(&mask, SIGTERM));
    other = popen("grep SigBlk /proc/self/status", "r");
    CHECK(other && fgets(text, sizeof text, other) && strncmp(text, "SigBlk:", 7) == 0 && pclose(other) == 0);
    CHECK((strtoull(text + 7, NULL, 16) >> (SIGTERM - 1)) % 2 == 0);
}

static const struct {
    const char *name;
    void (*use)(void);
} kinds[] = {
    {"conversions", conversions}, {"locales", locales},     {"errors", errors},           {"files", files},   {"names", names},
    {"times", times},             {"sorting", sorting},     {"ends", ends},               {"keys", keys},     {"libraries", libraries},
    {"traces", traces},           {"expressions", expressions}, {"tables", tables},       {"environment", environment}, {"processes", processes},
};

static void (*use)(void);

static int undone(spandrel_durable *state, void *argument) {
    (void)state;
    (void)argument;
    use();
    return -1;
}

static int kept(spandrel_durable *state, void *argument) {
    (void)state;
    (void)argument;
    use();
    return 0;
}

// What a command has left behind, if it was in the state, has other contents after this.
static int scribble(spandrel_durable *state, void *argument) {
    (void)state;
    (void)argument;
    static void *all[3000];
    for (int i = 0; i < 3000; i++) {
        size_t size = 16 + i % 100 * 24;
        CHECK((all[i] = malloc(size)) && is_inside(all[i]));
        memset(all[i], 0xff, size);
    }
    for (int i = 0; i < 3000; i++) free(all[i]);
    return 0;
}

struct results {
    char *duplicate, *part, *printed, *line, *path, *directory, *arguments, *memory;
    wchar_t *wide;
    regex_t expression;
    void *tree;
    struct dirent **entries;
    int entry_count;
    glob_t paths;
    wordexp_t words;
    struct hsearch_data table;
    size_t line_room, arguments_bytes, memory_bytes;
};

static struct results *results;

static int none(spandrel_durable *state, void *argument) {
    (void)state;
    (void)argument;
    return 0;
}

static int init(spandrel_durable *state, void *argument) {
    (void)argument;
    results = spandrel_durable_root(state, "results");
    if (results) return 0;
    results = calloc(1, sizeof *results);
    return spandrel_durable_set_root(state, "results", results);
}

static int by_text(const void *a, const void *b) {
    return strcmp(a, b);
}

// What a callback is the first to need is the process's also within a function whose results are the caller's.
static int visible(const struct dirent *entry) {
    static iconv_t kept;
    convert(&kept, "UTF-32", 20);
    CHECK(setlocale(LC_ALL, "C.UTF-8") && setlocale(LC_ALL, "C"));
    return entry->d_name[0] != '.';
}

// A regular expression of the process and one of the state find more parts, by the same call.
static void compare(regex_t *expression) {
    regex_t *both[] = {expression, &line, expression};
    for (int i = 0; i < 300; i++) {
        char text[40];
        snprintf(text, sizeof text, "%c-%c = %c", 'a' + i % 26, 'a' + i / 26, 'a' + i % 7);
        regmatch_t found[3];
        for (int j = 0; j < 3; j++) CHECK(regexec(both[j], text, 3, found, 0) == 0 && found[1].rm_eo == 3);
    }
}

static int collect(spandrel_durable *state, void *argument) {
    (void)state;
    struct results *all = results;
    CHECK(is_inside(all->duplicate = strdup("a text")) && is_inside(all->part = strndup("a text", 3)) && is_inside(all->wide = wcsdup(L"wide")));
    CHECK(asprintf(&all->printed, "%0500d %s", 7, "printed") > 500 && is_inside(all->printed));
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file && getline(&all->line, &all->line_room, file) > 0 && is_inside(all->line) && fclose(file) == 0);
    CHECK(is_inside(all->path = realpath("/proc/self/..", NULL)) && is_inside(all->directory = getcwd(NULL, 0)));
    CHECK(regcomp(&all->expression, "^([a-z0-9-]+) *= *([^;]*)", REG_EXTENDED) == 0 && is_inside(*(void **)&all->expression));
    regmatch_t found[3];
    CHECK(regexec(&all->expression, "name = value", 3, found, 0) == 0);
    compare(&all->expression);
    for (int i = 0; i < 100; i++) {
        char *text;
        CHECK(asprintf(&text, "%d", i * 37 % 100) > 0 && is_inside(text));
        char **node = tsearch(text, &all->tree, by_text);
        CHECK(node && *node == text && is_inside(node));
    }
    CHECK((all->entry_count = scandir("/etc", &all->entries, visible, alphasort)) > 0 && is_inside(all->entries) && is_inside(all->entries[0]));
    CHECK(glob("/etc/pass*", 0, NULL, &all->paths) == 0 && is_inside(all->paths.gl_pathv) && is_inside(all->paths.gl_pathv[0]));
    CHECK(wordexp("one two 'three four'", &all->words, WRDE_NOCMD) == 0 && is_inside(all->words.we_wordv[2]));
    CHECK(argz_create_sep("a:b:c", ':', &all->arguments, &all->arguments_bytes) == 0 && argz_add(&all->arguments, &all->arguments_bytes, "d") == 0);
    CHECK(is_inside(all->arguments) && hcreate_r(50, &all->table) && is_inside(all->table.table));
    FILE *memory = open_memstream(&all->memory, &all->memory_bytes);
    CHECK(memory && !is_inside(memory));
    for (int i = 0; i < 5000; i++) fprintf(memory, "%d ", i);
    CHECK(fclose(memory) == 0 && is_inside(all->memory) && strncmp(all->memory, "0 1 2 ", 6) == 0);
    return argument ? -1 : 0;
}

static int look(spandrel_durable *state, void *argument) {
    (void)state;
    (void)argument;
    struct results *all = results;
    CHECK(strcmp(all->duplicate, "a text") == 0 && strcmp(all->part, "a t") == 0 && wcscmp(all->wide, L"wide") == 0);
    CHECK(strcmp(all->printed + 501, "printed") == 0 && strncmp(all->line, "Name:", 5) == 0);
    CHECK(strcmp(all->path, "/proc") == 0 && all->directory[0] == '/');
    regmatch_t found[3];
    CHECK(regexec(&all->expression, "another-name = another value; and more", 3, found, 0) == 0 && found[1].rm_eo == 12);
    CHECK(regexec(&all->expression, "= none", 3, found, 0) == REG_NOMATCH);
    for (int i = 0; i < 100; i++) {
        char text[10];
        snprintf(text, sizeof text, "%d", i);
        char **node = tfind(text, &all->tree, by_text);
        CHECK(node && strcmp(*node, text) == 0);
    }
    for (int i = 1; i < all->entry_count; i++) CHECK(strcmp(all->entries[i - 1]->d_name, all->entries[i]->d_name) <= 0);
    CHECK(strncmp(all->paths.gl_pathv[0], "/etc/pass", 9) == 0 && strcmp(all->words.we_wordv[2], "three four") == 0);
    CHECK(argz_count(all->arguments, all->arguments_bytes) == 4 && strncmp(all->memory, "0 1 2 3 ", 8) == 0);
    return 0;
}

// What the state has is freed, and what the process has.
static int drop(spandrel_durable *state, void *argument) {
    (void)state;
    (void)argument;
    struct results *all = results;
    char *texts[] = {all->duplicate, all->part, all->printed, all->line, all->path, all->directory, all->arguments, all->memory, (char *)all->wide};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) free(texts[i]);
    regfree(&all->expression);
    tdestroy(all->tree, free);
    while (all->entry_count > 0) free(all->entries[--all->entry_count]);
    free(all->entries);
    globfree(&all->paths);
    wordfree(&all->words);
    hdestroy_r(&all->table);
    memset(all, 0, sizeof *all);
    return 0;
}

static void open_state(const char *directory) {
    spandrel_durable_options options = durable_options();
    options.stores = SPANDREL_DURABLE_STORES_VERIFIED;
    db = spandrel_durable_open(directory, &options, init, NULL);
    if (!db) fprintf(stderr, "%s\n", spandrel_durable_error_text());
    CHECK(db && spandrel_durable_write(db, none, NULL) == 0);
}

static void close_state(void) {
    spandrel_durable_figures figures = {.struct_size = sizeof figures};
    CHECK(spandrel_durable_get_figures(db, &figures) == 0 && figures.missed == 0);
    CHECK(spandrel_durable_close(db) == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 3 && spandrel_durable_fix_addresses() == 0);
    CHECK(regcomp(&line, "^([a-z0-9-]+) *= *([^;]*)", REG_EXTENDED) == 0);
    open_state(arguments[1]);
    if (strcmp(arguments[2], "results") == 0) {
        FAILS(ECANCELED, spandrel_durable_write(db, collect, db) < 0);
        CHECK(spandrel_durable_write(db, scribble, NULL) == 0);
        expressions();
        CHECK(spandrel_durable_write(db, collect, NULL) == 0 && spandrel_durable_write(db, look, NULL) == 0);
        close_state();
        open_state(arguments[1]);
        CHECK(spandrel_durable_write(db, look, NULL) == 0 && spandrel_durable_write(db, drop, NULL) == 0);
        CHECK(spandrel_durable_write(db, collect, NULL) == 0 && spandrel_durable_write(db, look, NULL) == 0 && spandrel_durable_write(db, drop, NULL) == 0);
        close_state();
        return 0;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, arguments[2]) == 0) use = kinds[i].use;
    CHECK(use);
    FAILS(ECANCELED, spandrel_durable_write(db, undone, NULL) < 0);
    CHECK(spandrel_durable_write(db, scribble, NULL) == 0);
    use();
    CHECK(spandrel_durable_write(db, kept, NULL) == 0);
    use();
    close_state();
    use();
    open_state(arguments[1]);
    CHECK(spandrel_durable_write(db, scribble, NULL) == 0 && spandrel_durable_write(db, kept, NULL) == 0);
    use();
    FAILS(ECANCELED, spandrel_durable_write(db, undone, NULL) < 0);
    close_state();
    use();
    return 0;
}
