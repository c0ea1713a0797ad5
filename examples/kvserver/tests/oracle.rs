//! Redis as the oracle: one seeded stream of random commands for both servers, and the same replies.

mod common;
mod families;

use common::{Client, Frame, Server, text};
use families::Family;

/// Commands for each family and seed.
const COMMANDS: usize = 6000;

/// Runs a stream of commands of a family against both servers.
fn compare(family: Family, seed: u64) {
    let place = tempfile::tempdir().unwrap();
    let ours = Server::start(&place.path().join("state"), &[]);
    let theirs = Server::redis(place.path());
    let (mut ours, mut theirs) = (ours.client(), theirs.client());
    let mut random = fastrand::Rng::with_seed(seed);
    let mut before: Vec<String> = Vec::new();
    for number in 0..COMMANDS {
        let words = family(&mut random);
        let reply = ours.call(&words);
        // What a random command has drawn is taken away by name.
        let expected = match (words[0].to_uppercase().as_str(), &reply) {
            ("SPOP", Frame::BulkString(member)) => {
                let removed = theirs.call(&[b"SREM", words[1].as_bytes(), member]);
                assert_eq!(removed, Frame::Integer(1), "{words:?}");
                continue;
            }
            ("SPOP", Frame::Array(members)) if !members.is_empty() => {
                let mut request = vec![b"SREM".to_vec(), words[1].clone().into_bytes()];
                request.extend(members.iter().map(|member| text(member).into_bytes()));
                let removed = theirs.call(&request);
                assert_eq!(removed, Frame::Integer(members.len() as i64), "{words:?}");
                continue;
            }
            // One that is drawn is any.
            ("SRANDMEMBER", Frame::BulkString(_)) => continue,
            _ => theirs.call(&words),
        };
        before.push(words.join(" "));
        assert!(
            agree(&words, &reply, &expected),
            "seed {seed}, command {number}: {words:?}\n ours:   {}\n theirs: {}\n before:\n  {}",
            text(&reply),
            text(&expected),
            before
                .iter()
                .filter(|line| words.get(1).is_none_or(|key| line.contains(key)))
                .rev()
                .take(12)
                .cloned()
                .collect::<Vec<_>>()
                .join("\n  "),
        );
        if number % 500 == 499 {
            // A transaction would take in what the dump reads.
            ours.line("DISCARD");
            theirs.line("DISCARD");
            assert_eq!(dump(&mut ours), dump(&mut theirs), "seed {seed}, after command {number}");
        }
    }
}

/// Whether two replies say the same.
fn agree(words: &[String], ours: &Frame, theirs: &Frame) -> bool {
    const UNORDERED: [&str; 8] =
        ["KEYS", "SMEMBERS", "HKEYS", "HVALS", "SINTER", "SUNION", "SDIFF", "SRANDMEMBER"];
    let name = words[0].to_uppercase();
    match (ours, theirs) {
        (Frame::Array(ours), Frame::Array(theirs)) if ours.len() != theirs.len() => false,
        (Frame::Array(ours), Frame::Array(theirs)) => {
            let (mut ours, mut theirs) = (ours.clone(), theirs.clone());
            if UNORDERED.contains(&name.as_str()) {
                ours.sort_by_key(text);
                theirs.sort_by_key(text);
            } else if name == "HGETALL" {
                ours = pairs(&ours);
                theirs = pairs(&theirs);
            }
            ours.iter().zip(&theirs).all(|(ours, theirs)| agree(words, ours, theirs))
        }
        // Milliseconds that pass between both.
        (Frame::Integer(ours), Frame::Integer(theirs)) if name.contains("TTL") && *theirs > 0 => {
            (ours - theirs).abs() <= if name == "PTTL" { 3000 } else { 3 }
        }
        (Frame::BulkString(first), Frame::BulkString(second)) => {
            first == second || {
                // Redis 7.0 writes 17 digits of a score.
                let number = |frame: &Frame| text(frame).parse::<f64>().ok();
                let close =
                    |(a, b): (f64, f64)| a == b || (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
                number(ours).zip(number(theirs)).is_some_and(close)
            }
        }
        _ => ours == theirs,
    }
}

/// Fields and values in the order of the fields.
fn pairs(frames: &[Frame]) -> Vec<Frame> {
    let mut pairs: Vec<&[Frame]> = frames.chunks(2).collect();
    pairs.sort_by_key(|pair| text(&pair[0]));
    pairs.concat()
}

/// All that a server has, by all ways to read it.
fn dump(client: &mut Client) -> Vec<String> {
    let mut lines = vec![format!("keys {}", client.integer("DBSIZE"))];
    let mut keys = scan(client, &["SCAN"]);
    keys.sort();
    for key in keys {
        let kind = client.text(&format!("TYPE {key}"));
        let content = match kind.as_str() {
            "string" => client.text(&format!("GET {key}")),
            "list" => client.text(&format!("LRANGE {key} 0 -1")),
            "set" => sorted(scan(client, &["SSCAN", &key])),
            "hash" => sorted_pairs(&scan(client, &["HSCAN", &key])),
            "zset" => {
                // Scores are numbers: the comparison of replies is exact enough for them.
                let members = client.text(&format!("ZRANGE {key} 0 -1"));
                let scanned = scan(client, &["ZSCAN", &key]).len();
                format!("{members} {scanned}")
            }
            other => panic!("{key} is a {other}"),
        };
        let expires = client.integer(&format!("PTTL {key}")) > 0;
        lines.push(format!("{key} {kind} {expires} {content}"));
    }
    lines
}

fn sorted(mut words: Vec<String>) -> String {
    words.sort();
    words.join(" ")
}

fn sorted_pairs(words: &[String]) -> String {
    sorted(words.chunks(2).map(|pair| pair.join("=")).collect())
}

/// All elements of a scan.
fn scan(client: &mut Client, words: &[&str]) -> Vec<String> {
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    loop {
        let mut request = words.to_vec();
        request.extend([&cursor, "COUNT", "3"]);
        let Frame::Array(reply) = client.call(&request) else { panic!("{words:?}") };
        let [next, Frame::Array(elements)] = &reply[..] else { panic!("{words:?}") };
        found.extend(elements.iter().map(text));
        cursor = text(next);
        if cursor == "0" {
            return found;
        }
    }
}

#[test]
fn strings_are_as_in_redis() {
    (0..3).for_each(|seed| compare(families::strings, seed));
}

#[test]
fn hashes_are_as_in_redis() {
    (0..3).for_each(|seed| compare(families::hashes, seed));
}

#[test]
fn lists_are_as_in_redis() {
    (0..3).for_each(|seed| compare(families::lists, seed));
}

#[test]
fn sets_are_as_in_redis() {
    (0..3).for_each(|seed| compare(families::sets, seed));
}

#[test]
fn sorted_sets_are_as_in_redis() {
    (0..3).for_each(|seed| compare(families::sorted_sets, seed));
}

#[test]
fn ranges_of_members_are_as_in_redis() {
    (0..3).for_each(|seed| compare(families::lexical_ranges, seed));
}

#[test]
fn keys_of_all_types_are_as_in_redis() {
    (0..3).for_each(|seed| compare(families::all, seed));
}

#[test]
fn transactions_are_as_in_redis() {
    (0..3).for_each(|seed| compare(families::transactions, seed));
}
