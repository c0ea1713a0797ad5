//! Commands on a map in memory: what no client of a running server sees.

use super::*;
use crate::keyspace::memory::Memory;
use crate::keyspace::{encoding, records};

struct Bench {
    server: Server,
    table: Table<Memory>,
    data: Memory,
    now: u64,
    keys: i64,
}

impl Bench {
    fn new() -> Self {
        let server = Server::new("none".into(), "memory".into(), 1, None);
        Self { server, table: Table::new(), data: Memory::default(), now: 1_000_000, keys: 0 }
    }

    fn call(&mut self, words: &[&[u8]]) -> String {
        let command = self.table.find(words[0]).expect("a command");
        assert!(command.takes(words.len()), "{}", command.name);
        let mut context = Context::new(&self.server, self.now, 5, Out::default());
        write(&mut context, &mut self.data, command, words);
        self.keys += context.keys;
        assert_eq!(self.keys, records::count_keys(&self.data), "after {}", command.name);
        String::from_utf8_lossy(&context.out.bytes).into_owned()
    }

    fn line(&mut self, line: &str) -> String {
        self.call(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
    }

    /// Cleans until nothing is left; returns the number of slices.
    fn clean(&mut self, slice: usize) -> usize {
        let mut slices = 0;
        while records::needs_cleaning(&self.data, self.now) {
            let mut context = Context::new(&self.server, self.now, 5, Out::default());
            records::clean(&mut context, &mut self.data, slice).unwrap();
            self.keys += context.keys;
            slices += 1;
            assert!(slices < 10_000, "cleaning ends");
        }
        slices
    }
}

#[test]
fn each_command_has_one_entry() {
    let mut names: Vec<&str> = Table::<Memory>::all().iter().map(|command| command.name).collect();
    let table = Table::<Memory>::new();
    for name in &names {
        let upper = name.to_uppercase();
        assert_eq!(table.find(upper.as_bytes()).map(|command| command.name), Some(*name));
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Table::<Memory>::all().len());
    assert!(table.find(b"a name that is longer than that of any command").is_none());
}

#[test]
fn where_there_is_no_room_commands_are_undone_and_deletions_run() {
    let mut bench = Bench::new();
    bench.line("MSET a 1 b 2");
    bench.line("RPUSH list x y z");
    let big: Vec<String> = (0..100).map(|number| format!("m{number}")).collect();
    bench.line(&format!("SADD set {}", big.join(" ")));
    let before = bench.data.records().clone();
    for line in [
        "MSET c 1 d 2 e 3",
        "HSET h f v g w",
        "ZADD z 1 a 2 b",
        "LPUSH list a b c",
        "EXPIRE a 100",
        "RENAME a c",
    ] {
        for room in 0..1 + u64::from(!line.starts_with("RENAME")) {
            bench.data.room = Some(room);
            let reply = bench.line(line);
            assert!(reply.starts_with("-OOM "), "{line}: {reply}");
            assert_eq!(*bench.data.records(), before, "{line}");
        }
    }
    bench.data.room = Some(0);
    assert_eq!(bench.line("GET a"), "$1\r\n1\r\n");
    assert_eq!(bench.line("DEL a list set"), ":3\r\n");
    assert_eq!(bench.line("KEYS *"), "*1\r\n$1\r\nb\r\n");
    assert_eq!(bench.line("FLUSHALL"), "+OK\r\n");
    assert!(bench.data.records().is_empty());
}

#[test]
fn large_collections_are_deleted_at_once_and_removed_in_slices() {
    let mut bench = Bench::new();
    for number in 0..500 {
        bench.line(&format!("HSET h f{number} v"));
        bench.line(&format!("ZADD z {number} m{number}"));
        bench.line(&format!("RPUSH l e{number}"));
    }
    let full = bench.data.records().len();
    assert_eq!(bench.line("DEL h z l"), ":3\r\n");
    assert!(bench.data.records().len() > full - 10);
    // A key of the same name has nothing of it.
    bench.line("HSET h other 1");
    assert_eq!(bench.line("HLEN h"), ":1\r\n");
    assert!(bench.clean(100) >= 20, "slices are small");
    assert_eq!(bench.line("HGETALL h"), "*2\r\n$5\r\nother\r\n$1\r\n1\r\n");
    bench.line("DEL h");
    // The next number of a collection is left.
    assert_eq!(bench.data.records().keys().collect::<Vec<_>>(), [encoding::NUMBER]);
}

#[test]
fn expired_keys_are_invisible_and_are_removed() {
    let mut bench = Bench::new();
    bench.line("SET a 1 PX 100");
    bench.line("SADD s x");
    bench.line("PEXPIRE s 100");
    bench.line("SET b 1 PX 300");
    bench.line("SET b 2 KEEPTTL");
    bench.line("SET c 1 PX 100");
    bench.line("PERSIST c");
    bench.now += 100;
    assert!(records::needs_cleaning(&bench.data, bench.now));
    assert_eq!(bench.line("EXISTS a s b c"), ":2\r\n");
    assert_eq!(bench.line("GET a"), "$-1\r\n");
    assert_eq!(bench.line("SCARD s"), ":0\r\n");
    // A command that writes finds nothing, and begins anew.
    assert_eq!(bench.line("APPEND a x"), ":1\r\n");
    assert_eq!(bench.line("PTTL a"), ":-1\r\n");
    bench.clean(1);
    bench.now += 200;
    bench.clean(1);
    assert_eq!(bench.line("EXISTS a b c"), ":2\r\n");
    bench.line("DEL a c");
    assert_eq!(bench.data.records().keys().collect::<Vec<_>>(), [encoding::NUMBER]);
}

#[test]
fn a_command_that_runs_again_does_the_same() {
    let members: Vec<String> = (0..1000).map(|number| format!("m{number}")).collect();
    let fill = format!("SADD s {}", members.join(" "));
    let mut replies = Vec::new();
    for _ in 0..2 {
        let mut bench = Bench::new();
        bench.line(&fill);
        replies.push((
            bench.line("SPOP s 20"),
            bench.line("SRANDMEMBER s 3"),
            bench.line("RANDOMKEY"),
        ));
    }
    assert_eq!(replies[0], replies[1]);
    assert_eq!(replies[0].0.matches('$').count(), 20);
}

#[test]
fn random_members_are_from_all_over_a_set() {
    let mut bench = Bench::new();
    let members: Vec<String> = (0..400).map(|number| format!("m{number}")).collect();
    bench.line(&format!("SADD s {}", members.join(" ")));
    let popped: std::collections::HashSet<String> = (0..400)
        .map(|number| {
            bench.now += number;
            let mut context = Context::new(&bench.server, bench.now, number, Out::default());
            let command = bench.table.find(b"spop").expect("a command");
            write(&mut context, &mut bench.data, command, &[b"spop", b"s"]);
            bench.keys += context.keys;
            String::from_utf8_lossy(&context.out.bytes).into_owned()
        })
        .collect();
    assert_eq!(popped.len(), 400, "each member once");
    assert_eq!(bench.line("EXISTS s"), ":0\r\n");
}

#[test]
fn the_last_time_there_is_may_be_a_time_of_expiry() {
    let mut bench = Bench::new();
    bench.line("SET a 1");
    assert_eq!(bench.line(&format!("PEXPIREAT a {}", i64::MAX)), ":1\r\n");
    assert_eq!(bench.line("PEXPIRETIME a"), format!(":{}\r\n", i64::MAX));
    assert_eq!(bench.line("EXPIRETIME a"), format!(":{}\r\n", i64::MAX / 1000));
    assert_eq!(bench.line("TTL a"), format!(":{}\r\n", (i64::MAX - 1_000_000) / 1000 + 1));
    assert!(bench.line(&format!("PEXPIRE a {}", i64::MAX)).starts_with("-ERR invalid expire time"));
}

#[test]
fn what_a_client_counts_is_bounded() {
    let mut bench = Bench::new();
    bench.line("SADD s a");
    for line in [
        "SRANDMEMBER s -9223372036854775808",
        "SETRANGE k 9223372036854775807 x",
        "SETRANGE k 536870912 x",
    ] {
        assert!(bench.line(line).starts_with("-ERR "), "{line}");
    }
    assert_eq!(bench.line("SRANDMEMBER s 9223372036854775807"), "*1\r\n$1\r\na\r\n");
    assert_eq!(bench.line("SPOP s 9223372036854775807"), "*1\r\n$1\r\na\r\n");
}

/// A key that had expired when a client began to watch it is removed: the client's transaction runs.
#[test]
fn a_watched_key_that_had_expired_does_not_change() {
    let mut bench = Bench::new();
    bench.line("SET a 1 PX 100");
    bench.now += 100;
    let first = bench.server.watched.enter(b"a");
    bench.clean(10);
    assert_eq!(bench.server.watched.changed(b"a"), Some(first));
    bench.line("SET a 2");
    assert_ne!(bench.server.watched.changed(b"a"), Some(first));
}

/// Members of 16 bytes whose XXH64 is the same: the second half is what the first one makes it.
fn members_of_one_hash(seed: u64, count: u64) -> Vec<Vec<u8>> {
    const P1: u64 = 0x9e37_79b1_85eb_ca87;
    const P2: u64 = 0xc2b2_ae3d_27d4_eb4f;
    const P4: u64 = 0x85eb_ca77_c2b2_ae63;
    const P5: u64 = 0x27d4_eb2f_1656_67c5;
    // Newton's method, modulo 2^64.
    let inverse =
        |of: u64| (0..6).fold(of, |x, _| x.wrapping_mul(2u64.wrapping_sub(of.wrapping_mul(x))));
    let round = |lane: u64| lane.wrapping_mul(P2).rotate_left(31).wrapping_mul(P1);
    let begin = seed.wrapping_add(P5).wrapping_add(16);
    let member = |first: u64| {
        let before = (begin ^ round(first)).rotate_left(27).wrapping_mul(P1).wrapping_add(P4);
        let second = before ^ 12345;
        let second = second.wrapping_mul(inverse(P1)).rotate_right(31).wrapping_mul(inverse(P2));
        [first.to_le_bytes(), second.to_le_bytes()].concat()
    };
    (0..count).map(member).collect()
}

#[test]
fn members_of_one_hash_are_drawn_without_end_of_the_server() {
    let mut bench = Bench::new();
    let members = members_of_one_hash(bench.data.seed(), 600);
    let hash = |member: &Vec<u8>| encoding::hash(bench.data.seed(), member);
    assert!(members.iter().all(|member| hash(member) == hash(&members[0])));
    let mut words: Vec<&[u8]> = vec![b"SADD", b"s"];
    words.extend(members.iter().map(Vec::as_slice));
    assert_eq!(bench.call(&words), ":600\r\n");
    for (count, head) in [("2", "*2"), ("100", "*100"), ("1000", "*600"), ("-3", "*3")] {
        let said = bench.line(&format!("SRANDMEMBER s {count}"));
        assert!(said.starts_with(&format!("{head}\r\n")), "{count}: {}", said.len());
    }
}

/// Clients keep cursors as numbers of floating point, or as signed ones.
#[test]
fn cursors_are_small_numbers() {
    let mut bench = Bench::new();
    for number in 0..3000 {
        bench.line(&format!("SET key{number} value"));
        bench.line(&format!("HSET hash field{number} value"));
    }
    for (scan, all) in [("SCAN", 3001), ("HSCAN hash", 3000)] {
        let (mut cursor, mut seen) = (0u64, std::collections::BTreeSet::new());
        loop {
            let reply = bench.line(&format!("{scan} {cursor}"));
            let words: Vec<&str> = reply.split("\r\n").collect();
            let next: u64 = words[2].parse().unwrap();
            assert!(next < 1 << 53, "{next}");
            let is_name = |word: &&str| word.starts_with("key") || word.starts_with("field");
            seen.extend(
                words
                    .iter()
                    .filter(|word| is_name(word) || **word == "hash")
                    .map(|word| (*word).to_owned()),
            );
            cursor = next as f64 as u64;
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(seen.len(), all, "{scan}");
    }
    // Behind all hashes.
    assert!(bench.line(&format!("SCAN {}", u64::MAX)).ends_with("$1\r\n0\r\n*0\r\n"));
}
