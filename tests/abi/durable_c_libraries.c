/* Libraries whose objects live in a durable state, and know nothing of it: streams of zlib, an SQLite database in memory, a Lua state.
 * A command's effect is a function of its number: the model is the same library on memory of the process, natively.
 *   durable_c_libraries DIRECTORY translated|verified zlib|sqlite|lua churn|verify|work [NUMBER] */
#include "durable.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <sqlite3.h>
#include <zlib.h>
#ifdef WITH_LUA
#include <lua5.4/lauxlib.h>
#include <lua5.4/lua.h>
#include <lua5.4/lualib.h>
#endif

/* splitmix64 (Steele, Lea, Flood 2014): numbers that depend on a command's number alone. */
static uint64_t next(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint64_t below(uint64_t *state, uint64_t end) { return next(state) % end; }

static uint64_t mixed(uint64_t sum, uint64_t with) {
    uint64_t state = sum ^ with * 0x9e3779b97f4a7c15u;
    return next(&state);
}

/* An object of a library. */
struct subject {
    void *(*make)(void);
    void (*step)(void *object, uint64_t number);
    /* A number for all that it has. The object's caches may change. */
    uint64_t (*sum)(void *object);
};

/* zlib: what one stream compresses another one expands. */
struct streams {
    z_stream in, out;
    uint64_t sum;
    int level;
};

enum { MOST = 3000 };

static void through(struct streams *streams, const unsigned char *text, unsigned len) {
    unsigned char small[MOST * 2], again[MOST];
    z_stream *in = &streams->in, *out = &streams->out;
    in->next_in = (unsigned char *)text, in->avail_in = len;
    in->next_out = small, in->avail_out = sizeof small;
    CHECK(deflate(in, Z_SYNC_FLUSH) == Z_OK && in->avail_in == 0 && in->avail_out > 0);
    unsigned bytes = (unsigned)sizeof small - in->avail_out;
    out->next_in = small, out->avail_in = bytes;
    out->next_out = again, out->avail_out = sizeof again;
    int result = inflate(out, Z_SYNC_FLUSH);
    CHECK(result == Z_OK && out->avail_in == 0 && sizeof again - out->avail_out == len && memcmp(again, text, len) == 0);
    streams->sum = mixed(streams->sum, crc32(bytes, small, bytes));
    in->next_in = in->next_out = out->next_in = out->next_out = NULL;
}

static void begin_streams(struct streams *streams, int level) {
    CHECK(deflateInit(&streams->in, level) == Z_OK && inflateInit(&streams->out) == Z_OK);
    streams->level = level;
}

static void *zlib_make(void) {
    struct streams *streams = calloc(1, sizeof *streams);
    CHECK(streams);
    begin_streams(streams, 6);
    return streams;
}

static unsigned text_of(uint64_t number, unsigned char *into) {
    uint64_t random = number;
    unsigned len = 1 + (unsigned)below(&random, MOST - 100), letters = 2 + (unsigned)below(&random, 40);
    for (unsigned at = 0; at < len; at++) into[at] = (unsigned char)('0' + below(&random, letters));
    return len;
}

static void zlib_step(void *object, uint64_t number) {
    struct streams *streams = object;
    uint64_t random = ~number;
    unsigned char text[MOST];
    if (below(&random, 50) == 0) {
        CHECK(deflateEnd(&streams->in) != Z_STREAM_ERROR && inflateEnd(&streams->out) == Z_OK);
        begin_streams(streams, (int)below(&random, 10));
    }
    through(streams, text, text_of(number, text));
}

static uint64_t zlib_sum(void *object) {
    /* What the windows have decides on what follows. */
    unsigned char text[MOST];
    through(object, text, text_of(12345, text));
    return ((struct streams *)object)->sum;
}

/* SQLite. */
static void run(sqlite3 *db, const char *sql) {
    char *why = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK) {
        fprintf(stderr, "%s: %s\n", sql, why);
        _exit(1);
    }
}

struct database {
    sqlite3 *db;
    sqlite3_stmt *replace;
};

static void *sqlite_make(void) {
    struct database *made = calloc(1, sizeof *made);
    CHECK(made && sqlite3_open_v2(":memory:", &made->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL) == SQLITE_OK);
    run(made->db, "CREATE TABLE t(k INTEGER PRIMARY KEY, v TEXT, w BLOB); CREATE INDEX tv ON t(v);"
                  "CREATE TABLE u(a TEXT, b INT, PRIMARY KEY(a, b)) WITHOUT ROWID;"
                  "CREATE TRIGGER d AFTER DELETE ON t BEGIN INSERT OR REPLACE INTO u VALUES(old.v, old.k % 50); END;");
    CHECK(sqlite3_prepare_v3(made->db, "INSERT OR REPLACE INTO t VALUES(?, ?, zeroblob(?))", -1, SQLITE_PREPARE_PERSISTENT, &made->replace, NULL) == SQLITE_OK);
    return made;
}

static void sqlite_step(void *object, uint64_t number) {
    struct database *of = object;
    uint64_t random = number;
    char text[500];
    int k = (int)below(&random, 2000);
    switch (below(&random, 10)) {
    case 0:
    case 1:
    case 2:
    case 3:
        for (int rest = 1 + (int)below(&random, 5); rest > 0; rest--) {
            snprintf(text, sizeof text, "value %d of %d", k, (int)below(&random, 1000));
            CHECK(sqlite3_bind_int(of->replace, 1, k++) == SQLITE_OK);
            CHECK(sqlite3_bind_text(of->replace, 2, text, -1, SQLITE_TRANSIENT) == SQLITE_OK);
            CHECK(sqlite3_bind_int(of->replace, 3, (int)below(&random, 2000)) == SQLITE_OK);
            CHECK(sqlite3_step(of->replace) == SQLITE_DONE && sqlite3_reset(of->replace) == SQLITE_OK);
        }
        CHECK(sqlite3_clear_bindings(of->replace) == SQLITE_OK);
        return;
    case 4: snprintf(text, sizeof text, "UPDATE t SET v = v || ' and %d', w = NULL WHERE k BETWEEN %d AND %d", k, k, k + 20); break;
    case 5: snprintf(text, sizeof text, "DELETE FROM t WHERE k BETWEEN %d AND %d", k, k + 10); break;
    case 6: snprintf(text, sizeof text, "DELETE FROM u WHERE b = %d", k % 50); break;
    case 7: snprintf(text, sizeof text, "BEGIN; UPDATE t SET v = 'lost'; INSERT INTO u SELECT v, -k FROM t ORDER BY k LIMIT 1; ROLLBACK; UPDATE t SET v = 'kept %d' WHERE k = %d", k, k); break;
    case 8: snprintf(text, sizeof text, "INSERT OR IGNORE INTO u SELECT substr(v, 1, 12), count(*) FROM t WHERE k > %d GROUP BY 1 ORDER BY 2 LIMIT 5", k); break;
    default: {
        /* Fails, and is undone by SQLite. */
        snprintf(text, sizeof text, "INSERT INTO t SELECT k + 1, v, w FROM t WHERE k >= %d", k);
        sqlite3_exec(of->db, text, NULL, NULL, NULL);
        return;
    }
    }
    run(of->db, text);
}

static uint64_t sqlite_sum(void *object) {
    struct database *of = object;
    static const char *const questions[] = {
        "PRAGMA integrity_check",
        "SELECT k, v, length(w) FROM t ORDER BY k",
        "SELECT v FROM t INDEXED BY tv ORDER BY v",
        "SELECT a, b FROM u ORDER BY a, b",
    };
    uint64_t sum = 0;
    for (size_t question = 0; question < sizeof questions / sizeof *questions; question++) {
        sqlite3_stmt *rows;
        CHECK(sqlite3_prepare_v2(of->db, questions[question], -1, &rows, NULL) == SQLITE_OK);
        int row;
        while ((row = sqlite3_step(rows)) == SQLITE_ROW) {
            for (int column = 0; column < sqlite3_column_count(rows); column++) {
                const unsigned char *text = sqlite3_column_text(rows, column);
                CHECK(question > 0 || strcmp((const char *)text, "ok") == 0);
                sum = mixed(sum, text ? crc32(0, text, (unsigned)sqlite3_column_bytes(rows, column)) : 7);
            }
        }
        CHECK(row == SQLITE_DONE && sqlite3_finalize(rows) == SQLITE_OK);
    }
    return sum;
}

/* Lua. */
#ifdef WITH_LUA
static const char script[] =
    "local texts, lists, count = {}, {}, 0\n"
    "local ticker = coroutine.wrap(function(n) while true do count = count + n % 7; n = coroutine.yield(count) end end)\n"
    "function step(n)\n"
    "  local k = n % 500\n"
    "  texts[k] = ('%x'):format(n * 2654435761 % 2^32 // 1 | 0):rep(n % 9)\n"
    "  lists[n % 97] = lists[n % 97] or {}\n"
    "  table.insert(lists[n % 97], texts[(n * 31) % 500] or n)\n"
    "  if #lists[n % 97] > 40 then lists[n % 97] = nil end\n"
    "  local well, why = pcall(function() if n % 3 == 0 then error({at = n}) end return n // (n % 5 == 0 and error('no') or 1) end)\n"
    "  count = count + (well and why or type(why) == 'table' and why.at or 1)\n"
    "  local object = setmetatable({}, {__index = function(_, key) return key .. n end, __gc = function() end})\n"
    "  texts[k + 1000] = object.name\n"
    "  count = count + ticker(n)\n"
    "  if n % 200 == 0 then collectgarbage() end\n"
    "end\n"
    "function sum()\n"
    "  local keys, parts = {}, {count}\n"
    "  for k in pairs(texts) do keys[#keys + 1] = k end\n"
    "  table.sort(keys)\n"
    "  for _, k in ipairs(keys) do parts[#parts + 1] = k .. texts[k] end\n"
    "  for k = 0, 96 do parts[#parts + 1] = table.concat(lists[k] or {}, ',') end\n"
    "  return table.concat(parts, ';')\n"
    "end\n";

static void *lua_make(void) {
    lua_State *lua = luaL_newstate();
    CHECK(lua);
    luaL_openlibs(lua);
    CHECK(luaL_dostring(lua, script) == LUA_OK);
    return lua;
}

static void lua_step(void *object, uint64_t number) {
    lua_State *lua = object;
    lua_getglobal(lua, "step");
    lua_pushinteger(lua, (lua_Integer)number);
    if (lua_pcall(lua, 1, 0, 0) != LUA_OK) {
        fprintf(stderr, "%s\n", lua_tostring(lua, -1));
        _exit(1);
    }
}

static uint64_t lua_sum(void *object) {
    lua_State *lua = object;
    lua_getglobal(lua, "sum");
    CHECK(lua_pcall(lua, 0, 1, 0) == LUA_OK);
    size_t len;
    const char *text = lua_tolstring(lua, -1, &len);
    uint64_t sum = mixed(len, crc32(0, (const unsigned char *)text, (unsigned)len));
    lua_pop(lua, 1);
    return sum;
}
#endif

static const struct subject *subject_of(const char *name) {
    static const struct subject zlib = {zlib_make, zlib_step, zlib_sum}, sqlite = {sqlite_make, sqlite_step, sqlite_sum};
    if (strcmp(name, "zlib") == 0) return &zlib;
    if (strcmp(name, "sqlite") == 0) return &sqlite;
#ifdef WITH_LUA
    static const struct subject lua = {lua_make, lua_step, lua_sum};
    if (strcmp(name, "lua") == 0) return &lua;
#endif
    CHECK(!"a subject");
    return NULL;
}

struct kept {
    void *object;
    uint64_t done;
};

static const struct subject *subject;
static struct kept *kept;
static volatile uint64_t *acknowledged;

static int init(spandrel_durable *db, void *argument) {
    (void)argument;
    kept = spandrel_durable_root(db, "kept");
    if (kept) return 0;
    kept = calloc(1, sizeof *kept);
    kept->object = subject->make();
    return spandrel_durable_set_root(db, "kept", kept);
}

static int step(spandrel_durable *db, void *argument) {
    (void)db;
    uint64_t number = *(uint64_t *)argument;
    if (number != kept->done) {
        /* Is undone. */
        subject->step(kept->object, number);
        return -1;
    }
    subject->step(kept->object, kept->done++);
    return 0;
}

struct answer {
    uint64_t done, sum;
};

/* A number is a result. What the object's caches have become is undone. */
static int sum(spandrel_durable *db, void *argument) {
    (void)db;
    struct answer *answer = argument;
    answer->done = kept->done;
    answer->sum = subject->sum(kept->object);
    return -1;
}

static void verify(spandrel_durable *db) {
    struct answer answer;
    FAILS(ECANCELED, spandrel_durable_write(db, sum, &answer) == -1);
    /* One command may have been durable and not acknowledged. */
    CHECK(answer.done >= *acknowledged && answer.done <= *acknowledged + 1);
    *acknowledged = answer.done;
    void *model = subject->make();
    for (uint64_t number = 0; number < answer.done; number++) subject->step(model, number);
    CHECK(subject->sum(model) == answer.sum);
}

int main(int count, char **arguments) {
    CHECK(spandrel_durable_fix_addresses() == 0);
    CHECK(count >= 5);
    char path[4096];
    snprintf(path, sizeof path, "%s.acknowledged", arguments[1]);
    int file = open(path, O_RDWR | O_CREAT, 0600);
    CHECK(file >= 0 && ftruncate(file, 4096) == 0);
    acknowledged = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(acknowledged != MAP_FAILED);
    /* What belongs to the whole program is made before. */
    CHECK(sqlite3_initialize() == SQLITE_OK);
    subject = subject_of(arguments[3]);
    spandrel_durable_options options = durable_options();
    options.stores = strcmp(arguments[2], "verified") == 0 ? SPANDREL_DURABLE_STORES_VERIFIED : SPANDREL_DURABLE_STORES_TRANSLATED;
    spandrel_durable *db = spandrel_durable_open(arguments[1], &options, init, NULL);
    CHECK(db);
    verify(db);
    if (strcmp(arguments[4], "verify") != 0) {
        uint64_t end = strcmp(arguments[4], "work") == 0 ? *acknowledged + strtoull(arguments[5], NULL, 10) : UINT64_MAX;
        puts("begun");
        fflush(stdout);
        while (*acknowledged < end) {
            uint64_t number = *acknowledged, refused = number + 1000000;
            if (number % 29 == 5) FAILS(ECANCELED, spandrel_durable_write(db, step, &refused) == -1);
            CHECK(spandrel_durable_write(db, step, &number) == 0);
            *acknowledged = number + 1;
        }
        verify(db);
    }
    spandrel_durable_figures figures = {.struct_size = sizeof figures};
    CHECK(spandrel_durable_get_figures(db, &figures) == 0);
    CHECK(figures.missed == 0);
    printf("changed %llu\n", (unsigned long long)(figures.changed / 32));
    CHECK(spandrel_durable_close(db) == 0);
    db = spandrel_durable_open(arguments[1], &options, init, NULL);
    CHECK(db && durable_report(db).was_closed);
    verify(db);
    CHECK(spandrel_durable_close(db) == 0);
    return 0;
}
