//! What clients call.

/// A command on one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// The value, if there is one.
    Get(String),
    /// Bytes of the value.
    Len(String),
    /// Gives the key a value: `OK`.
    Set(String, String),
    /// Adds to the end of the value: its bytes then.
    Append(String, String),
    /// Adds one to the number, 0 at first: the number then.
    Incr(String),
    /// Removes the key: 1, or 0 if there was none.
    Del(String),
}

impl Command {
    /// Its name, its key, and its value if it has one.
    pub fn words(&self) -> Vec<&str> {
        match self {
            Self::Get(key) => vec!["get", key],
            Self::Len(key) => vec!["len", key],
            Self::Set(key, value) => vec!["set", key, value],
            Self::Append(key, value) => vec!["append", key, value],
            Self::Incr(key) => vec!["incr", key],
            Self::Del(key) => vec!["del", key],
        }
    }

    /// Whether it changes nothing.
    pub fn reads(&self) -> bool {
        matches!(self, Self::Get(_) | Self::Len(_))
    }
}

/// Groups of keys that are used at a time.
const GROUPS: u64 = 3;
/// Rounds after which other groups are used: the judge's time for a group grows faster than its calls.
const ROUNDS: u64 = 8;
/// The keys of a group: a counter, two texts.
const KEYS: [&str; 3] = ["count", "one", "two"];

/// Draws the calls of one client in one round.
#[derive(Debug)]
pub struct Work {
    random: fastrand::Rng,
    client: u64,
    round: u64,
    calls: u64,
}

impl Work {
    /// Of a client in the round of that number.
    pub fn new(seed: u64, client: u64, round: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed ^ round << 8 ^ client);
        Self { random, client, round, calls: 0 }
    }

    /// The next call: one command, or several of one group, which are one transaction.
    pub fn next_call(&mut self) -> Vec<Command> {
        self.calls += 1;
        let group = format!("{}-{}", self.round / ROUNDS, self.random.u64(..GROUPS));
        let count = if self.random.u8(..6) == 0 { self.random.usize(2..5) } else { 1 };
        (0..count).map(|part| self.command(&group, part)).collect()
    }

    fn command(&mut self, group: &str, part: usize) -> Command {
        let key = format!("{group}:{}", KEYS[self.random.usize(1..KEYS.len())]);
        // No two are the same.
        let value = format!("{}.{}.{}.{part},", self.round, self.client, self.calls);
        match self.random.u8(..20) {
            0..5 => Command::Get(key),
            5 => Command::Len(key),
            6..8 => Command::Get(format!("{group}:count")),
            8..12 => Command::Incr(format!("{group}:count")),
            12..15 => Command::Set(key, value),
            15 => Command::Del(key),
            _ => Command::Append(key, value),
        }
    }

    /// Reads of all keys of all rounds before that one.
    pub fn reads_of_all(round: u64) -> Vec<Command> {
        let groups = (0..=round / ROUNDS).flat_map(|era| (0..GROUPS).map(move |n| (era, n)));
        let keys = groups.flat_map(|(era, n)| KEYS.map(|key| format!("{era}-{n}:{key}")));
        keys.map(Command::Get).collect()
    }
}
