//! What is to be run, by the words of a command line.

use crate::keys::{KEY_BYTES, Spread};

/// A job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Job {
    /// Puts into an empty store, by rising keys.
    FillSeq,
    /// Puts into an empty store, by keys drawn at random.
    FillRandom,
    /// Puts of keys that are there.
    Overwrite,
    /// All pairs by rising keys, again and again.
    ReadSeq,
    /// All pairs by falling keys, again and again.
    ReadReverse,
    /// Gets and puts, of which `updates` in a hundred are puts.
    Mixed,
    /// Loads an empty store by batches of keys that rise.
    Bulk,
    /// Puts of a thousand keys that are there at a time.
    Batches,
    /// Ten pairs from a key on.
    Ranges,
    /// Every other key is removed, all at once.
    Removals,
    /// Loads the store, and ends the process at once.
    Crash,
    /// Opens a store that [`Job::Crash`] has left.
    Reopen,
}

const JOBS: [(&str, Job); 12] = [
    ("fillseq", Job::FillSeq),
    ("fillrandom", Job::FillRandom),
    ("overwrite", Job::Overwrite),
    ("readseq", Job::ReadSeq),
    ("readreverse", Job::ReadReverse),
    ("mixed", Job::Mixed),
    ("bulk", Job::Bulk),
    ("batches", Job::Batches),
    ("ranges", Job::Ranges),
    ("removals", Job::Removals),
    ("crash", Job::Crash),
    ("reopen", Job::Reopen),
];

/// A job with its numbers.
#[derive(Clone, Debug)]
pub struct Args {
    pub job: Job,
    pub directory: String,
    pub threads: usize,
    /// Keys in all.
    pub keys: u32,
    /// Bytes of a value.
    pub value: usize,
    /// Puts among a hundred requests.
    pub updates: u32,
    pub spread: Spread,
    /// The longest duration of a run, in milliseconds; a fill ends with its keys.
    pub millis: u64,
}

impl Args {
    /// Reads `--name value` pairs.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let mut args = Self {
            job: Job::FillRandom,
            directory: String::new(),
            threads: 1,
            keys: 100_000,
            value: 100,
            updates: 100,
            spread: Spread::Uniform,
            millis: 1000,
        };
        let mut pairs = words.chunks_exact(2);
        for pair in pairs.by_ref() {
            let [name, value] = pair else { continue };
            let from_to = |least: u64, most: u64| {
                let number = value.parse::<u64>().ok();
                let number = number.filter(|number| (least..=most).contains(number));
                number.ok_or_else(|| format!("{name} {value}: not a number from {least} to {most}"))
            };
            let number = |most| from_to(1, most);
            match name.as_str() {
                "--job" => {
                    let known = JOBS.iter().find(|(name, _)| name == value);
                    args.job = known.ok_or_else(|| format!("--job {value}: no such job"))?.1;
                }
                "--directory" => args.directory.clone_from(value),
                "--threads" => args.threads = number(1024)? as usize,
                "--keys" => args.keys = number(1 << 30)? as u32,
                "--value" => args.value = number(64 << 20)? as usize,
                "--updates" => args.updates = from_to(0, 100)? as u32,
                "--spread" => {
                    args.spread = match value.as_str() {
                        "uniform" => Spread::Uniform,
                        "zipf" => Spread::Zipf,
                        _ => return Err(format!("--spread {value}: uniform or zipf")),
                    }
                }
                "--millis" => args.millis = number(3_600_000)?,
                _ => return Err(format!("{name}: no such option")),
            }
        }
        if let [left] = pairs.remainder() {
            return Err(format!("{left}: a name without a value"));
        }
        if args.directory.is_empty() {
            return Err("--directory: where the store is to lie".into());
        }
        Ok(args)
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> u64 {
        u64::from(self.keys) * (KEY_BYTES + self.value) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        Args::parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn words_and_defaults() {
        let args = parse("--job mixed --directory /x --updates 10 --spread zipf").unwrap();
        assert_eq!((args.job, args.updates, args.spread), (Job::Mixed, 10, Spread::Zipf));
        assert_eq!(args.bytes(), 11_600_000);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, part) in [
            ("--job x --directory /x", "no such job"),
            ("--keys 0 --directory /x", "--keys 0"),
            ("--spread some --directory /x", "uniform"),
            ("--what 1 --directory /x", "--what"),
            ("--directory /x --keys", "--keys"),
            ("--keys 5", "--directory"),
        ] {
            let why = parse(line).unwrap_err();
            assert!(why.contains(part), "{line}: {why}");
        }
    }
}
