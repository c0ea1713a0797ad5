//! A program whose threads read and write a state is killed at random moments, also while it opens the state: the history of its threads, with commands that have not returned as a maybe,
//! is linearizable across the restarts.
//!
//! `SPANDREL_SOAK` says how often it is killed: 200 times in CI.

use std::path::Path;
use std::process::{Child, Command as Program, Stdio};
use std::time::Duration;

use spandrel::durable::collections::{Open as _, SortedBytes};
use spandrel::durable::{Client, Durable};
use spandrel_histories::{Command, History, Work, judge, now};

use super::small;

const THREADS: u64 = 4;
/// The longest time from the opening to a kill of a program on a disk,
pub const LONGEST: Duration = Duration::from_millis(40);
/// and of one in memory, which makes as many calls in that: the judge searches an order of all.
const LONGEST_IN_MEMORY: Duration = Duration::from_millis(5);
/// Of the program that is killed: the state, the history, the seed and the round.
const CHILD: &str = "SPANDREL_TEST_DURABLE_HISTORY";

type Map = SortedBytes;

fn open(path: &Path) -> Durable<Map> {
    Durable::open(path, small(), |arena| SortedBytes::open(arena, "map")).unwrap()
}

fn text(map: &Map, key: &str) -> Option<String> {
    map.get(key.as_bytes()).map(|value| String::from_utf8(value.to_vec()).unwrap())
}

fn look(map: &Map, command: &Command) -> Option<String> {
    match command {
        Command::Get(key) => text(map, key),
        Command::Len(key) => Some(text(map, key).unwrap_or_default().len().to_string()),
        other => panic!("{other:?} is no read"),
    }
}

fn change(map: &mut Map, command: &Command) -> Option<String> {
    let mut put = |key: &str, value: &str| map.insert(key.as_bytes(), value.as_bytes()).unwrap();
    match command {
        Command::Set(key, value) => {
            put(key, value);
            Some("OK".into())
        }
        Command::Append(key, value) => {
            let value = text(map, key).unwrap_or_default() + value;
            map.insert(key.as_bytes(), value.as_bytes()).unwrap();
            Some(value.len().to_string())
        }
        Command::Incr(key) => {
            let number = text(map, key).map_or(0, |number| number.parse::<u64>().unwrap()) + 1;
            map.insert(key.as_bytes(), number.to_string().as_bytes()).unwrap();
            Some(number.to_string())
        }
        Command::Del(key) => Some(u8::from(map.remove(key.as_bytes()).unwrap()).to_string()),
        read => look(map, read),
    }
}

fn call(client: &mut Client<'_, Map>, commands: &[Command]) -> Vec<Option<String>> {
    if commands.iter().all(Command::reads) {
        return client.read(|map| commands.iter().map(|command| look(map, command)).collect());
    }
    client.write(|map| commands.iter().map(|command| change(map, command)).collect()).unwrap()
}

/// The program: it ends by a kill.
fn run(words: &str) {
    let words: Vec<&str> = words.split('\n').collect();
    let (path, history) = (Path::new(words[0]), History::open(Path::new(words[1])));
    let (seed, round) = (words[2].parse().unwrap(), words[3].parse().unwrap());
    let db = open(path);
    println!("open");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, history) = (&db, &history);
            scope.spawn(move || {
                let mut client = db.client();
                let mut work = Work::new(seed, thread, round);
                loop {
                    let commands = work.next_call();
                    let open = history.call(thread, &commands);
                    let results = call(&mut client, &commands);
                    history.returned(open, now(), &results);
                }
            });
        }
    });
}

fn start(path: &Path, history: &Path, seed: u64, round: u64) -> Child {
    let mut program = Program::new(std::env::current_exe().unwrap());
    let words = format!("{}\n{}\n{seed}\n{round}", path.display(), history.display());
    program.args(["histories::of_a_program_on_a_disk", "--exact", "--nocapture"]).env(CHILD, words);
    program.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

fn judged(place: &Path, kills: u64, longest: Duration) {
    judged_after(place, &place.join("state"), kills, longest, |program| {
        program.kill().unwrap();
        program.wait().unwrap();
        now()
    });
}

/// `fail` is called that number of times, at random moments up to `longest` after the opening: no program has the state open after it. It returns when the failure began.
pub fn judged_after(
    place: &Path,
    path: &Path,
    kills: u64,
    longest: Duration,
    mut fail: impl FnMut(&mut Child) -> u64,
) {
    use std::io::{BufRead, BufReader};
    let file = place.join("history");
    let history = History::open(&file);
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..kills {
        let mut program = start(path, &file, seed, round);
        // Some end before the state is open: in recovery.
        let is_early = random.u8(..4) == 0;
        if !is_early {
            let lines = BufReader::new(program.stdout.take().unwrap()).lines();
            assert!(lines.map_while(Result::ok).any(|line| line == "open"), "round {round}");
        }
        std::thread::sleep(longest.mul_f64(random.f64()));
        let since = fail(&mut program);
        program.wait().unwrap();
        history.crash_since(since);
        // An early failure may leave no state.
        if path.join("state").exists() {
            super::verified(path);
        }
    }
    let db = open(path);
    for command in Work::reads_of_all(kills) {
        let open = history.call(0, std::slice::from_ref(&command));
        let found = db.read(|map| look(map, &command));
        history.returned(open, now(), &[found]);
    }
    db.close().unwrap();
    let figures = judge(&file).expect_linearizable();
    println!("{kills} failures: {figures}");
    let calls = figures.split("linearizable: ").nth(1).and_then(|rest| rest.split(' ').next());
    assert!(calls.unwrap().parse::<u64>().unwrap() > kills * 3, "{figures}");
}

pub fn kills() -> u64 {
    std::env::var("SPANDREL_SOAK").map_or(200, |kills| kills.parse().unwrap())
}

#[test]
fn of_a_program_on_a_disk() {
    if let Ok(words) = std::env::var(CHILD) {
        return run(&words);
    }
    let place = tempfile::tempdir().unwrap();
    judged(place.path(), kills() / 2, LONGEST);
}

#[test]
fn of_a_program_in_memory() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    judged(place.path(), kills() - kills() / 2, LONGEST_IN_MEMORY);
}
