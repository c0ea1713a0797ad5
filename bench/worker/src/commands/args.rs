//! What is to be measured, by the words of a command line.

/// A measurement with its numbers.
#[derive(Clone, Debug)]
pub struct Args {
    /// The kind of commands.
    pub command: String,
    /// How their stores are found.
    pub way: String,
    /// Keys of the state.
    pub keys: u64,
    /// The longest duration of the timed part, in milliseconds.
    pub millis: u64,
    /// Where a durable state may lie; empty: nowhere.
    pub directory: String,
}

impl Args {
    /// Reads `--name value` pairs.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let mut args = Self {
            command: String::new(),
            way: String::new(),
            keys: 100_000,
            millis: 500,
            directory: String::new(),
        };
        let mut pairs = words.chunks_exact(2);
        for pair in pairs.by_ref() {
            let [name, value] = pair else { continue };
            let number = || {
                let number = value.parse::<u64>().ok();
                let number = number.filter(|number| (1..=1 << 30).contains(number));
                number.ok_or_else(|| format!("{name} {value}: not a number from 1 to {}", 1 << 30))
            };
            match name.as_str() {
                "--command" => args.command.clone_from(value),
                "--way" => args.way.clone_from(value),
                "--directory" => args.directory.clone_from(value),
                "--keys" => args.keys = number()?,
                "--millis" => args.millis = number()?,
                _ => return Err(format!("{name}: no such option")),
            }
        }
        match pairs.remainder() {
            [left, ..] => Err(format!("{left}: a name without a value")),
            [] => Ok(args),
        }
    }

    /// There is no such way.
    pub fn unknown(&self, ways: &[&str]) -> String {
        format!("--way {} of {}: there are {}", self.way, self.command, ways.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::Args;

    fn parse(line: &str) -> Result<Args, String> {
        Args::parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn words_and_what_is_wrong_with_them() {
        let args = parse("--command tree --way pages --keys 7").unwrap();
        assert_eq!((args.command.as_str(), args.keys, args.millis), ("tree", 7, 500));
        for (line, part) in [("--keys 0", "--keys 0"), ("--what 1", "--what"), ("--way", "--way")] {
            let why = parse(line).unwrap_err();
            assert!(why.contains(part), "{line}: {why}");
        }
    }
}
