//! The judge accepts what a store may do, and rejects a lost write, a stale read, an effect that is there twice, half of a transaction.

use std::path::Path;

use spandrel_histories::{Command, History, Verdict, judge, now};

/// The verdict on a history of these lines, in which each word of a list is in quotes.
fn verdict(lines: &[&str]) -> Verdict {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("history");
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    judge(&path)
}

/// A call, its return and its result, in short.
fn done(id: u32, from: u64, to: u64, what: &str, results: &str) -> [String; 2] {
    [begun(id, from, what), format!(r#"{{"return": {to}, "id": {id}, "results": [{results}]}}"#)]
}

fn begun(id: u32, from: u64, what: &str) -> String {
    let commands: Vec<String> = what
        .split("; ")
        .map(|command| {
            format!(
                "[{}]",
                command.split(' ').map(|w| format!("{w:?}")).collect::<Vec<_>>().join(",")
            )
        })
        .collect();
    format!(r#"{{"call": {from}, "id": {id}, "client": {id}, "do": [{}]}}"#, commands.join(","))
}

fn crash(at: u64) -> String {
    format!(r#"{{"crash": {at}, "until": {}}}"#, at + 5)
}

fn of(events: &[&[String]]) -> Verdict {
    let lines: Vec<&str> =
        events.iter().flat_map(|lines| lines.iter().map(String::as_str)).collect();
    verdict(&lines)
}

fn accepts(events: &[&[String]]) {
    let verdict = of(events);
    assert!(matches!(verdict, Verdict::Linearizable(_)), "{verdict:?}");
}

fn rejects(events: &[&[String]], names: &str) {
    match of(events) {
        Verdict::Not(why) => assert!(why.contains(names), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_acknowledged_write_that_a_failure_loses() {
    let set = done(1, 10, 20, "set a:x v", r#""OK""#);
    let lost = done(2, 40, 50, "get a:x", "null");
    rejects(&[&set, &[crash(30)], &lost], "get a:x");
    let kept = done(2, 40, 50, "get a:x", r#""v""#);
    accepts(&[&set, &[crash(30)], &kept]);
}

#[test]
fn a_stale_read() {
    let events = [
        done(1, 10, 20, "set a:x old", r#""OK""#),
        done(2, 30, 40, "set a:x new", r#""OK""#),
        done(3, 50, 60, "get a:x", r#""old""#),
    ];
    rejects(&[&events[0], &events[1], &events[2]], "get a:x");
    // Beside the write it may come first.
    let beside = done(3, 35, 60, "get a:x", r#""old""#);
    accepts(&[&events[0], &events[1], &beside]);
}

#[test]
fn a_read_that_goes_back() {
    let set = done(1, 10, 100, "set a:x v", r#""OK""#);
    let first = done(2, 20, 30, "get a:x", r#""v""#);
    let second = done(3, 40, 50, "get a:x", "null");
    rejects(&[&set, &first, &second], "a:x");
}

#[test]
fn an_effect_that_is_there_twice() {
    let one = done(1, 10, 20, "incr a:n", r#""1""#);
    let three = done(2, 40, 50, "incr a:n", r#""3""#);
    rejects(&[&one, &[crash(30)], &three], "incr a:n");
    let append = done(1, 10, 20, "append a:x v,", r#""2""#);
    let twice = done(2, 40, 50, "get a:x", r#""v,v,""#);
    rejects(&[&append, &[crash(30)], &twice], "get a:x");
}

#[test]
fn a_call_without_a_return_is_done_before_the_failure_or_never() {
    let maybe = begun(1, 10, "incr a:n");
    for (first, second) in [("1", "2"), ("2", "3")] {
        let (first, second) = (format!("{first:?}"), format!("{second:?}"));
        let next = [done(2, 40, 50, "incr a:n", &first), done(3, 60, 70, "incr a:n", &second)];
        accepts(&[&[maybe.clone(), crash(30)], &next[0], &next[1]]);
    }
    // Not after the failure.
    let before = done(2, 40, 50, "get a:n", "null");
    let after = done(3, 60, 70, "get a:n", r#""1""#);
    rejects(&[&[maybe.clone(), crash(30)], &before, &after], "get a:n");
    // And not if it was called after the failure.
    let other = verdict(&[&crash(4), &maybe]);
    assert!(matches!(&other, Verdict::Malformed(why) if why.contains("neither")), "{other:?}");
}

#[test]
fn what_returns_while_the_store_fails_does_not_count() {
    let set = done(1, 10, 33, "set a:x v", r#""OK""#);
    let read = done(2, 31, 32, "get a:x", r#""v""#);
    let after = done(3, 40, 50, "get a:x", "null");
    accepts(&[&set, &read, &[crash(30)], &after]);
    let early = done(2, 21, 22, "get a:x", r#""v""#);
    rejects(&[&set, &early, &[crash(30)], &after], "get a:x");
}

#[test]
fn half_of_a_transaction() {
    let maybe = begun(1, 10, "set a:x v; set a:y v");
    let half = done(2, 40, 50, "get a:x; get a:y", r#""v", null"#);
    rejects(&[&[maybe.clone(), crash(30)], &half], "a:y");
    let apart = [done(2, 40, 50, "get a:x", r#""v""#), done(3, 60, 70, "get a:y", "null")];
    rejects(&[&[maybe.clone(), crash(30)], &apart[0], &apart[1]], "a:y");
    let nothing = done(2, 40, 50, "get a:x; get a:y", "null, null");
    accepts(&[&[maybe, crash(30)], &nothing]);
}

#[test]
fn every_command_has_its_result() {
    for (what, results) in [
        ("append a:x ab; len a:x; del a:x; del a:x; len a:x", r#""2", "2", "1", "0", "0""#),
        ("set a:x 5; incr a:x; get a:x", r#""OK", "6", "6""#),
    ] {
        accepts(&[&done(1, 10, 20, what, results)]);
        rejects(&[&done(1, 10, 20, what, &results.replace(['2', '6'], "7"))], "a:x");
    }
}

#[test]
fn what_is_no_history_is_refused() {
    for lines in [
        &["{}"][..],
        &[""],
        &["no json"],
        &[r#"{"call": 1, "id": 1, "client": 0, "do": [["unknown", "a:x"]]}"#],
        &[r#"{"return": 1, "id": 1, "results": []}"#],
        &[r#"{"call": 1, "id": 1, "client": 0, "do": [["get", "a:x"], ["get", "b:x"]]}"#],
        &[r#"{"call": 1, "id": 1, "client": 0, "do": [["get", "a:x"]]}"#],
    ] {
        let verdict = verdict(lines);
        assert!(matches!(verdict, Verdict::Malformed(_)), "{lines:?}: {verdict:?}");
    }
    assert!(matches!(judge(Path::new("/no/history")), Verdict::Malformed(_)));
}

#[test]
fn a_line_that_a_kill_has_torn_is_no_event() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("history");
    let history = History::open(&path);
    let set = Command::Set("a:x".into(), "v".into());
    let open = history.call(1, std::slice::from_ref(&set));
    history.returned(open, now(), &[Some("OK".into())]);
    let mut torn = std::fs::read_to_string(&path).unwrap();
    torn.push_str(r#"{"call":7,"client":1,"do":[["set","a:"#);
    std::fs::write(&path, torn).unwrap();
    history.crash();
    let open = history.call(1, &[Command::Get("a:x".into())]);
    history.returned(open, now(), &[Some("v".into())]);
    let verdict = judge(&path);
    assert!(matches!(verdict, Verdict::Linearizable(_)), "{verdict:?}");
}
