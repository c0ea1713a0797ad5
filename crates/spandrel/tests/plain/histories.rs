//! A program whose threads read and write a state of ordinary types is killed at random moments, also while it opens the state: the history of its threads, with commands that have not
//! returned as a maybe, is linearizable across the restarts.
//!
//! `SPANDREL_SOAK` says how often it is killed: 60 times in CI.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use spandrel::durable::fix_addresses;
use spandrel_histories::{Command, History, Work, judge, now};

use crate::children::child;
use crate::states::open;

const THREADS: u64 = 4;

type Map = HashMap<String, String>;

fn look(map: &Map, command: &Command) -> Option<String> {
    match command {
        Command::Get(key) => map.get(key).cloned(),
        Command::Len(key) => Some(map.get(key).map_or(0, String::len).to_string()),
        other => panic!("{other:?} is no read"),
    }
}

fn change(map: &mut Map, command: &Command) -> Option<String> {
    match command {
        Command::Set(key, value) => {
            map.insert(key.clone(), value.clone());
            Some("OK".into())
        }
        Command::Append(key, value) => {
            let whole = map.entry(key.clone()).or_default();
            whole.push_str(value);
            Some(whole.len().to_string())
        }
        Command::Incr(key) => {
            let number = map.get(key).map_or(0, |number| number.parse::<u64>().unwrap()) + 1;
            map.insert(key.clone(), number.to_string());
            Some(number.to_string())
        }
        Command::Del(key) => Some(u8::from(map.remove(key).is_some()).to_string()),
        read => look(map, read),
    }
}

/// The program: it ends by a kill. The words are the history's path, the seed and the round.
pub fn run(path: &Path, words: &[String]) {
    fix_addresses().unwrap();
    let history = History::open(Path::new(&words[0]));
    let (seed, round) = (words[1].parse().unwrap(), words[2].parse().unwrap());
    let db = open(path, Map::new);
    println!("open");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, history) = (&db, &history);
            scope.spawn(move || {
                let mut work = Work::new(seed, thread, round);
                loop {
                    let commands = work.next_call();
                    let open = history.call(thread, &commands);
                    let results: Vec<_> = if commands.iter().all(Command::reads) {
                        db.read(|map| commands.iter().map(|command| look(map, command)).collect())
                    } else {
                        let all =
                            |map: &mut Map| commands.iter().map(|one| change(map, one)).collect();
                        db.write(all).unwrap()
                    };
                    history.returned(open, now(), &results);
                }
            });
        }
    });
}

pub fn kills_leave_a_history_that_is_linearizable() {
    let kills = std::env::var("SPANDREL_SOAK").map_or(60, |kills| kills.parse::<u64>().unwrap());
    // In memory a program makes as many calls in a tenth of the time: the judge searches an order of all.
    for (place, longest) in [("/tmp", 40), ("/dev/shm", 4)] {
        let place = tempfile::tempdir_in(place).unwrap();
        judged(place.path(), kills / 2, Duration::from_millis(longest));
    }
}

fn judged(place: &Path, kills: u64, longest: Duration) {
    let (file, path) = (place.join("history"), place.join("state"));
    let history = History::open(&file);
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..kills {
        let mut command = child("history", &path);
        command.arg(&file).args([seed.to_string(), round.to_string()]);
        let mut program = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // Some end before the state is open: in recovery.
        if random.u8(..4) > 0 {
            let lines = BufReader::new(program.stdout.take().unwrap()).lines();
            assert!(lines.map_while(Result::ok).any(|line| line == "open"), "round {round}");
        }
        std::thread::sleep(longest.mul_f64(random.f64()));
        program.kill().unwrap();
        program.wait().unwrap();
        history.crash_since(now());
    }
    let db = open(&path, Map::new);
    for command in Work::reads_of_all(kills) {
        let open = history.call(0, std::slice::from_ref(&command));
        let found = db.read(|map| look(map, &command));
        history.returned(open, now(), &[found]);
    }
    db.close().unwrap();
    let figures = judge(&file).expect_linearizable();
    println!("{kills} kills: {figures}");
    let calls = figures.split("linearizable: ").nth(1).and_then(|rest| rest.split(' ').next());
    assert!(calls.unwrap().parse::<u64>().unwrap() > kills * 3, "{figures}");
}
