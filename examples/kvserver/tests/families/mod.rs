//! Random commands of each family, right and wrong ones.

use fastrand::Rng;

/// Draws a command.
pub type Family = fn(&mut Rng) -> Vec<String>;

fn of(random: &mut Rng, words: &[&str]) -> String {
    random.choice(words).copied().unwrap_or_default().to_owned()
}

fn key(random: &mut Rng) -> String {
    of(random, &["a", "b", "c", "d", "e", "key:with:a:longer:name"])
}

fn integer(random: &mut Rng) -> String {
    match random.u8(0..12) {
        0 => {
            of(random, &["9223372036854775807", "-9223372036854775808", "x", "", "1.5", "01", "+1"])
        }
        _ => random.i64(-6..7).to_string(),
    }
}

fn value(random: &mut Rng) -> String {
    match random.u8(0..6) {
        0 => integer(random),
        1 => random.i64(-100..100).to_string(),
        2 => of(random, &["", "10.5", "-3.25", "3e2", "a b", "\r\n", "0"]),
        _ => (0..random.usize(1..5)).map(|_| random.lowercase()).collect(),
    }
}

fn member(random: &mut Rng) -> String {
    format!("m{}", random.u8(0..14))
}

fn score(random: &mut Rng) -> String {
    match random.u8(0..10) {
        0 => of(random, &["inf", "-inf", "x", "", "nan", "1e3", "0"]),
        1 | 2 => format!("{:.2}", random.f64() * 8.0 - 4.0),
        _ => random.i64(-4..5).to_string(),
    }
}

fn bound(random: &mut Rng) -> String {
    // Redis reads nothing as 0 there.
    let score =
        Some(score(random)).filter(|score| !score.is_empty()).unwrap_or_else(|| "0".to_owned());
    if random.u8(0..4) == 0 { format!("({score}") } else { score }
}

fn lexical(random: &mut Rng) -> String {
    match random.u8(0..8) {
        0 => of(random, &["-", "+", "(", "[", "m", ""]),
        1 => "-".to_owned(),
        2 => "+".to_owned(),
        _ => format!("{}{}", of(random, &["[", "("]), member(random)),
    }
}

fn fraction(random: &mut Rng) -> String {
    match random.u8(0..8) {
        0 => of(random, &["inf", "-inf", "nan", "", "x", " 1", "1e5", "1e15", ".5", "+5."]),
        1 => random.i32(..).to_string(),
        // Redis adds in binary: these have no error there.
        _ => format!("{}.{}", random.i8(..), of(random, &["0", "25", "5", "75", "125"])),
    }
}

/// A command: the words, and in place of `{k}`, `{i}`, `{t}`, `{v}`, `{m}`, `{s}`, `{b}`, `{l}`, `{f}`, `{r}` a key, an integer, a time, a value, a member, a score, a bound of
/// scores or of members, a number with a fraction, a rank. An option in `[…]` is there in one case of three.
fn drawn(random: &mut Rng, patterns: &[&str]) -> Vec<String> {
    let pattern = of(random, patterns);
    let mut words = Vec::new();
    for word in pattern.split(' ') {
        let word = match word.strip_prefix('[').and_then(|word| word.strip_suffix(']')) {
            Some(_) if random.u8(0..3) != 0 => continue,
            Some(option) => option,
            None => word,
        };
        for word in word.split('_') {
            words.push(match word {
                "{k}" => key(random),
                "{i}" => integer(random),
                "{t}" => of(
                    random,
                    &["1000", "0", "-1", "x", "", "9223372036854775807", "-9223372036854775808"],
                ),
                "{v}" => value(random),
                "{m}" => member(random),
                "{s}" => score(random),
                "{b}" => bound(random),
                "{r}" => random.i8(-3..4).to_string(),
                "{l}" => lexical(random),
                "{f}" => fraction(random),
                word => word.to_owned(),
            });
        }
    }
    if random.u8(0..60) == 0 && words.len() > 1 {
        words.pop();
    }
    if random.u8(0..60) == 0 {
        words.push(value(random));
    }
    words
}

const STRINGS: &[&str] = &[
    "SET {k} {v}",
    "SET {k} {v} [NX] [XX] [GET] [KEEPTTL] [EX_1000] [PX_100000]",
    "SET {k} {v} [GET] [EX_{t}]",
    "SET {k} {v} [PXAT_99999999999999] [EXAT_-1]",
    "GET {k}",
    "GETSET {k} {v}",
    "GETDEL {k}",
    "GETEX {k} [EX_{t}]",
    "GETEX {k} [PERSIST] [PX_100000]",
    "HINCRBYFLOAT floats {m} {f}",
    "INCRBYFLOAT {k} {f}",
    "SETNX {k} {v}",
    "SETEX {k} 1000 {v}",
    "SETEX {k} {t} {v}",
    "PSETEX {k} 100000 {v}",
    "MSET {k} {v} [{k}_{v}] [{k}]",
    "MSETNX {k} {v} [{k}_{v}]",
    "MGET {k} {k} [{k}]",
    "APPEND {k} {v}",
    "STRLEN {k}",
    "INCR {k}",
    "DECR {k}",
    "INCRBY {k} {i}",
    "DECRBY {k} {i}",
    "INCRBYFLOAT float 0.5",
    "INCRBYFLOAT float -1.25",
    "INCRBYFLOAT {k} x",
    "GET float",
    "SETRANGE {k} {i} {v}",
    "GETRANGE {k} {i} {i}",
];

const HASHES: &[&str] = &[
    "HSET {k} {m} {v} [{m}_{v}] [{m}_{v}] [{m}]",
    "HMSET {k} {m} {v} [{m}_{v}] [{m}]",
    "HSETNX {k} {m} {v}",
    "HGET {k} {m}",
    "HMGET {k} {m} {m} [{m}]",
    "HGETALL {k}",
    "HDEL {k} {m} [{m}] [{m}]",
    "HLEN {k}",
    "HEXISTS {k} {m}",
    "HSTRLEN {k} {m}",
    "HKEYS {k}",
    "HVALS {k}",
    "HINCRBY {k} {m} {i}",
    "HINCRBYFLOAT {k} float 0.5",
    "HINCRBYFLOAT {k} {m} x",
];

const LISTS: &[&str] = &[
    "LPUSH {k} {v} [{v}] [{v}]",
    "RPUSH {k} {v} [{v}] [{v}]",
    "RPUSH {k} x y x [x] [y]",
    "LPUSHX {k} {v}",
    "RPUSHX {k} {v}",
    "LPOP {k} [{i}]",
    "RPOP {k} [{i}]",
    "LLEN {k}",
    "LRANGE {k} {i} {i}",
    "LRANGE {k} 0 -1",
    "LINDEX {k} {i}",
    "LSET {k} {i} {v}",
    "LTRIM {k} {i} {i}",
    "LREM {k} {i} x",
    "LREM {k} {i} y",
    "LINSERT {k} BEFORE x {v}",
    "LINSERT {k} AFTER y {v}",
    "LINSERT {k} OVER y {v}",
    "LPOS {k} x [RANK_{r}] [COUNT_{i}] [MAXLEN_{i}]",
    "LPOS {k} y [COUNT_0] [RANK_-1]",
    "LMOVE {k} {k} LEFT RIGHT",
    "LMOVE {k} {k} RIGHT LEFT",
    "LMOVE {k} {k} RIGHT RIGHT",
    "LMOVE {k} {k} DOWN UP",
    "RPOPLPUSH {k} {k}",
];

const SETS: &[&str] = &[
    "SADD {k} {m} [{m}] [{m}] [{m}]",
    "SADD {k} {m} {m}",
    "SREM {k} {m} [{m}]",
    "SMEMBERS {k}",
    "SISMEMBER {k} {m}",
    "SMISMEMBER {k} {m} {m}",
    "SCARD {k}",
    "SPOP {k}",
    "SPOP {k} 2",
    "SPOP {k} -1",
    "SRANDMEMBER {k} 100",
    "SINTER {k} {k} [{k}]",
    "SUNION {k} {k} [{k}]",
    "SDIFF {k} {k} [{k}]",
    "SINTERSTORE {k} {k} {k} [{k}]",
    "SUNIONSTORE {k} {k} [{k}]",
    "SDIFFSTORE {k} {k} {k} [{k}]",
    "SMOVE {k} {k} {m}",
    "SINTERCARD 2 {k} {k} [LIMIT_{i}]",
    "SINTERCARD {i} {k} {k}",
];

const SORTED: &[&str] = &[
    "ZADD {k} {s} {m} [{s}_{m}] [{s}_{m}] [{m}]",
    "ZADD {k} [NX] [XX] [GT] [LT] [CH] {s} {m} [{s}_{m}]",
    "ZADD {k} [NX] [XX] [GT] [CH] INCR {s} {m} [{s}_{m}]",
    "ZSCORE {k} {m}",
    "ZMSCORE {k} {m} {m}",
    "ZREM {k} {m} [{m}]",
    "ZCARD {k}",
    "ZCOUNT {k} {b} {b}",
    "ZINCRBY {k} {s} {m}",
    "ZRANGE {k} {i} {i} [REV] [WITHSCORES]",
    "ZRANGE {k} {b} {b} BYSCORE [REV] [WITHSCORES] [LIMIT_{i}_{i}]",
    "ZRANGE {k} {i} {i} LIMIT 0 1",
    "ZREVRANGE {k} {i} {i} [WITHSCORES]",
    "ZRANGEBYSCORE {k} {b} {b} [WITHSCORES] [LIMIT_{i}_{i}]",
    "ZREVRANGEBYSCORE {k} {b} {b} [WITHSCORES] [LIMIT_{i}_{i}]",
    "ZRANK {k} {m}",
    "ZREVRANK {k} {m}",
    "ZPOPMIN {k} [{i}]",
    "ZPOPMAX {k} [{i}]",
    "ZREMRANGEBYSCORE {k} {b} {b}",
    "ZREMRANGEBYRANK {k} {i} {i}",
];

/// Sorted sets of one score.
const LEXICAL: &[&str] = &[
    "ZADD {k} 0 {m} 0 {m} [0_{m}]",
    "ZREM {k} {m}",
    "ZRANGE {k} {l} {l} BYLEX [REV] [LIMIT_{i}_{i}] [WITHSCORES]",
    "ZRANGE {k} {l} {l} BYLEX [BYSCORE]",
    "ZRANGEBYLEX {k} {l} {l} [LIMIT_{i}_{i}]",
    "ZREVRANGEBYLEX {k} {l} {l} [LIMIT_{i}_{i}]",
    "ZLEXCOUNT {k} {l} {l}",
    "ZREMRANGEBYLEX {k} {l} {l}",
    "ZRANGE {k} 0 -1",
];

const KEYS: &[&str] = &[
    "DEL {k} [{k}]",
    "UNLINK {k}",
    "EXISTS {k} {k}",
    "TYPE {k}",
    "KEYS *",
    "KEYS [a-c]",
    "KEYS key*n?me",
    "DBSIZE",
    "EXPIRE {k} 1000 [NX] [XX]",
    "EXPIREAT {k} 99999999998 [NX] [XX] [GT] [LT]",
    "EXPIRE {k} {t} [NX]",
    "PEXPIRE {k} 500000",
    "EXPIREAT {k} 99999999999 [GT] [LT]",
    "PEXPIREAT {k} {i}",
    "PERSIST {k}",
    "TTL {k}",
    "PTTL {k}",
    "RENAME {k} {k}",
    "RENAMENX {k} {k}",
    "RANDOMKE {k}",
    "ECHO {v}",
    "WAIT 0 0",
    "SELECT 0",
    "SELECT x",
    "SELECT 99",
];

/// Commands of a family, and sometimes one of another type or about keys.
fn mostly(random: &mut Rng, family: &[&str]) -> Vec<String> {
    match random.u8(0..30) {
        0 => drawn(
            random,
            &["SET {k} {v}", "RPUSH {k} {v}", "SADD {k} {m}", "HSET {k} {m} {v}", "ZADD {k} 1 {m}"],
        ),
        1 | 2 => drawn(
            random,
            &["DEL {k} {k} {k}", "RENAME {k} {k}", "EXPIRE {k} 500", "DEL {k}", "TTL {k}"],
        ),
        _ => drawn(random, family),
    }
}

pub fn strings(random: &mut Rng) -> Vec<String> {
    mostly(random, STRINGS)
}

pub fn hashes(random: &mut Rng) -> Vec<String> {
    mostly(random, HASHES)
}

pub fn lists(random: &mut Rng) -> Vec<String> {
    mostly(random, LISTS)
}

pub fn sets(random: &mut Rng) -> Vec<String> {
    mostly(random, SETS)
}

pub fn sorted_sets(random: &mut Rng) -> Vec<String> {
    mostly(random, SORTED)
}

pub fn lexical_ranges(random: &mut Rng) -> Vec<String> {
    match random.u8(0..30) {
        0 => drawn(random, &["SET {k} {v}", "DEL {k}", "RENAME {k} {k}"]),
        _ => drawn(random, LEXICAL),
    }
}

pub fn all(random: &mut Rng) -> Vec<String> {
    let families = [STRINGS, HASHES, LISTS, SETS, SORTED, KEYS, KEYS, KEYS];
    if random.u16(0..1500) == 0 {
        return vec![of(random, &["FLUSHALL", "flushdb"]), of(random, &["ASYNC", "SYNC"])];
    }
    let family = families[random.usize(0..families.len())];
    drawn(random, family)
}

pub fn transactions(random: &mut Rng) -> Vec<String> {
    match random.u8(0..12) {
        0 | 1 => vec!["MULTI".to_owned()],
        2 | 3 => vec!["EXEC".to_owned()],
        4 if random.u8(0..4) == 0 => vec!["DISCARD".to_owned()],
        5 => drawn(random, &["WATCH {k} [{k}]", "UNWATCH"]),
        _ => {
            let family = [STRINGS, HASHES, LISTS, SORTED][random.usize(0..4)];
            let words = drawn(random, family);
            // Replies of an `EXEC` are compared in order.
            let is_ordered = !["HGETALL", "HKEYS", "HVALS"].contains(&words[0].as_str());
            if is_ordered { words } else { vec!["HLEN".to_owned(), key(random)] }
        }
    }
}
