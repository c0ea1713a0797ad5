//! Random commands of Redis whose results depend on nothing but the commands before.

use fastrand::Rng;

/// Keys of each type: few, so that commands meet.
const KEYS: u64 = 12;

/// A command, as its words.
pub type Words = Vec<String>;

struct Draw<'r>(&'r mut Rng);

impl Draw<'_> {
    fn key(&mut self, kind: &str) -> String {
        // Now and then one of another type.
        let kinds = ["str", "num", "list", "hash", "set", "zset", "stream", "hll", "bits"];
        let kind = if self.0.u8(..50) == 0 { kinds[self.0.usize(..kinds.len())] } else { kind };
        format!("{kind}{}", self.0.u64(..KEYS))
    }

    fn number(&mut self) -> String {
        let numbers = [0, 1, 7, 99, 9999, 10_000, 123_456_789, -5, -10_001];
        numbers[self.0.usize(..numbers.len())].to_string()
    }

    fn value(&mut self) -> String {
        match self.0.u8(..12) {
            0..3 => self.number(),
            3 => "x".repeat(self.0.usize(..60_000)),
            4 => "y".repeat(self.0.usize(30..60)),
            5 => String::new(),
            _ => format!("value-{}", self.0.u64(..100)),
        }
    }

    fn member(&mut self) -> String {
        match self.0.u8(..8) {
            0..3 => self.0.u64(..40).to_string(),
            3 => format!("{}{}", "m".repeat(70), self.0.u64(..10)),
            _ => format!("member-{}", self.0.u64(..200)),
        }
    }

    fn one_of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.0.usize(..words.len())]
    }
}

fn words<const N: usize>(words: [&str; N]) -> Words {
    words.map(str::to_owned).to_vec()
}

/// Whether a command is one that reads.
pub fn reads(command: &Words) -> bool {
    let name = command.first().map_or("", String::as_str);
    ["GET", "LRANGE", "HGETALL", "SMEMBERS", "ZRANGE", "XLEN", "PFCOUNT"].contains(&name)
}

/// A random command. `entry`: a number that is larger each time.
pub fn random(random: &mut Rng, entry: u64) -> Words {
    let mut draw = Draw(random);
    let d = &mut draw;
    match d.0.u8(..34) {
        0 => words(["SET", &d.key("str"), &d.value()]),
        1 => words(["SET", &d.key("str"), &d.value(), "EX", "100000"]),
        2 => words(["APPEND", &d.key("str"), &d.value()]),
        3 => words(["SETRANGE", &d.key("str"), &d.0.u64(..200).to_string(), &d.value()]),
        4 => words(["GETSET", &d.key("str"), &d.value()]),
        5 => words(["MSET", &d.key("str"), &d.value(), &d.key("str"), &d.value()]),
        6 => words([d.one_of(&["INCR", "DECR"]), &d.key("num")]),
        7 => words(["INCRBYFLOAT", &d.key("num"), "1.5"]),
        8 => words(["SETBIT", &d.key("bits"), &d.0.u64(..5000).to_string(), d.one_of(&["0", "1"])]),
        9 => words(["BITOP", "XOR", &d.key("bits"), &d.key("bits"), &d.key("bits")]),
        10 => words([d.one_of(&["LPUSH", "RPUSH"]), &d.key("list"), &d.value(), &d.value()]),
        11 => words([d.one_of(&["LPOP", "RPOP"]), &d.key("list"), d.one_of(&["1", "2", "7"])]),
        12 => words(["LINSERT", &d.key("list"), "BEFORE", &d.value(), &d.value()]),
        13 => words(["LTRIM", &d.key("list"), "0", &d.0.u64(..60).to_string()]),
        14 => words(["LMOVE", &d.key("list"), &d.key("list"), "LEFT", "RIGHT"]),
        15 => words(["HSET", &d.key("hash"), &d.member(), &d.value(), &d.member(), &d.value()]),
        16 => words(["HDEL", &d.key("hash"), &d.member(), &d.member()]),
        17 => words(["HINCRBY", &d.key("hash"), &format!("n{}", d.0.u8(..9)), "3"]),
        18 => words(["SADD", &d.key("set"), &d.member(), &d.member(), &d.member()]),
        19 => words(["SREM", &d.key("set"), &d.member(), &d.member()]),
        20 => words([
            d.one_of(&["SUNIONSTORE", "SINTERSTORE", "SDIFFSTORE"]),
            &d.key("set"),
            &d.key("set"),
            &d.key("set"),
        ]),
        21 => words([
            "ZADD",
            &d.key("zset"),
            &d.0.u64(..100).to_string(),
            &d.member(),
            "1.25",
            &d.member(),
        ]),
        22 => words(["ZREM", &d.key("zset"), &d.member()]),
        23 => words(["ZINCRBY", &d.key("zset"), "2", &d.member()]),
        24 => words(["ZUNIONSTORE", &d.key("zset"), "2", &d.key("zset"), &d.key("zset")]),
        25 => words(["XADD", &d.key("stream"), &format!("{entry}-1"), &d.member(), &d.value()]),
        26 => words(["XTRIM", &d.key("stream"), "MAXLEN", &d.0.u64(..40).to_string()]),
        27 => words(["PFADD", &d.key("hll"), &d.member(), &d.member()]),
        28 => {
            let kind = d.one_of(&["str", "num", "list", "hash", "set", "zset", "stream", "bits"]);
            words([d.one_of(&["DEL", "UNLINK", "PERSIST"]), &d.key(kind)])
        }
        29 => {
            let kind = d.one_of(&["str", "list", "hash", "set", "zset", "stream"]);
            let name = d.one_of(&["COPY", "RENAME"]);
            words([name, &d.key(kind), &d.key(kind)])
        }
        30 => {
            let kind = d.one_of(&["str", "list", "hash", "set", "zset"]);
            words(["EXPIRE", &d.key(kind), d.one_of(&["100000", "-1"])])
        }
        31 => words([
            "EVAL",
            "redis.call('SET', KEYS[1], ARGV[1]); redis.call('RPUSH', KEYS[2], ARGV[1], string.rep(ARGV[2], 3)); return redis.call('LLEN', KEYS[2])",
            "2",
            &d.key("str"),
            &d.key("list"),
            &d.value(),
            &d.member(),
        ]),
        32 => match d.0.u8(..6) {
            0 => words(["FLUSHDB", d.one_of(&["SYNC", "ASYNC"])]),
            1 => words(["SWAPDB", "0", "1"]),
            2 => words(["MOVE", &d.key("str"), "1"]),
            _ => words(["SORT", &d.key("list"), "ALPHA", "STORE", &d.key("list")]),
        },
        _ => {
            let kind = d.one_of(&[
                "GET str",
                "LRANGE list",
                "HGETALL hash",
                "SMEMBERS set",
                "ZRANGE zset",
                "XLEN stream",
                "PFCOUNT hll",
            ]);
            let (name, kind) = kind.split_once(' ').unwrap();
            let mut command = words([name, &d.key(kind)]);
            if name.ends_with("RANGE") {
                command.extend(words(["0", "-1"]));
            }
            command
        }
    }
}
