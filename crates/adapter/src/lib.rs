//! Adapters: what is to be known of a program so that its state becomes durable without a change of its source.
//!
//! An adapter is a TOML file; `docs/adapters.md` writes one step by step. The command finds the adapter of a program, and the library that is loaded into the program reads it again there.
//!
//! Invariants:
//! - A field that is not known is an error, as is a rule that names nothing: a rule that is passed over is a write that is lost.
//! - Names of functions and variables are those that the program shows to the loader.
//!
//! This room must never know how a rule is carried out.

mod builtin;

use std::fmt;

use serde::Deserialize;

pub use builtin::{BUILTIN, Builtin, for_program};

/// What is to be known of a program.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapter {
    /// The program.
    pub program: Program,
    /// Where the program has made all that it makes at its start, and has served nothing yet.
    pub point: Point,
    /// What the program draws at random at its start, and the state depends on.
    #[serde(default)]
    pub input: Vec<Input>,
    /// Variables of the program that lead into the state.
    pub root: Vec<Root>,
    /// Functions that change the state.
    pub command: Vec<Command>,
    /// Functions that link an object into the state that lies outside of it.
    #[serde(default)]
    pub adopt: Vec<Adopt>,
    /// Functions that do nothing outside of commands.
    #[serde(default)]
    pub skip: Vec<Skip>,
    /// Functions that return a number, and do nothing.
    #[serde(default)]
    pub returns: Vec<Returns>,
    /// Functions in whose place others are called.
    #[serde(default)]
    pub instead: Vec<Instead>,
    /// Functions that return a number, and say why they do nothing.
    #[serde(default)]
    pub refuse: Vec<Refuse>,
    /// Functions that send nothing in the middle of a command.
    #[serde(default)]
    pub held: Vec<Held>,
    /// Functions that end the program, or write its data.
    #[serde(default)]
    pub commit: Vec<Commit>,
    /// Functions that hand work to another thread.
    #[serde(default)]
    pub at_once: Vec<AtOnce>,
    /// Functions that return the number of bytes which the program uses.
    #[serde(default)]
    pub counts: Vec<Counts>,
    /// How the program allocates.
    pub allocator: Option<Allocator>,
    /// What commands allocate for the process.
    #[serde(default)]
    pub process: Process,
    /// What must hold at the point.
    #[serde(default)]
    pub require: Vec<Require>,
    /// How the program itself writes its data to a file, and reads that.
    pub dump: Option<Dump>,
}

/// The program.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// The adapter's name.
    pub name: String,
    /// One line about it.
    pub about: String,
    /// Names of the program's file, without directories.
    pub executables: Vec<String>,
    /// How the program is asked for its version.
    pub version: Vec<String>,
    /// What the answer has, one of these: places of fields are those of these versions.
    pub versions: Vec<String>,
}

/// A function that the program enters once.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Its name. It runs as a command where the state is new, and not at all where the state was recovered.
    pub function: String,
}

/// A function whose argument leads to bytes that are the same in each process.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Its name.
    pub function: String,
    /// Which argument, from 0 to 5.
    pub argument: usize,
    /// How many bytes.
    pub bytes: usize,
}

/// Where a number comes from.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// The address of a variable or a function.
    pub symbol: Option<String>,
    /// An argument of the function that the rule is about, from 0 to 5.
    pub argument: Option<usize>,
    /// Each is added, and the word is read that lies there.
    #[serde(default)]
    pub loads: Vec<i64>,
    /// What is added at last, and nothing is read.
    #[serde(default)]
    pub offset: i64,
    /// Bytes of the last word that is read: 1, 2, 4 or 8.
    #[serde(default = "eight")]
    pub bytes: usize,
}

fn eight() -> usize {
    8
}

/// An array of the program with words that lead into the state.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Root {
    /// Its name in the state.
    pub name: String,
    /// Where the array begins.
    pub array: Value,
    /// How many elements it has.
    pub count: Count,
    /// Bytes from one element to the next.
    pub stride: usize,
    /// Where the words lie in an element.
    pub words: Vec<usize>,
    /// The objects that they lead to have as many bytes, and lead nowhere, when the state is new.
    pub object_bytes: usize,
    /// The words do not change.
    #[serde(default)]
    pub constant: bool,
}

/// A number of elements.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Count {
    /// Always the same.
    Number(usize),
    /// The program's.
    Value(Value),
}

/// Holds if the number, masked, is not 0, or is the given one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// The number.
    pub value: Value,
    /// Bits that count.
    #[serde(default = "all")]
    pub mask: u64,
    /// What they are to be.
    pub equals: Option<u64>,
    /// The same: the address of a function or a variable.
    pub equals_symbol: Option<String>,
}

fn all() -> u64 {
    u64::MAX
}

/// A function that changes the state.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// Its name.
    pub function: String,
    /// When it does: one of these holds, or there is none.
    #[serde(default)]
    pub when: Vec<Condition>,
    /// It serves other clients before it ends: it begins a batch of its own, so that all before it is durable.
    #[serde(default)]
    pub apart: bool,
}

/// A function that links one of its arguments into the state. An object that lies outside is copied, the copy is linked, and the count of owners that the program
/// adds to the object is taken back after the command.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adopt {
    /// Its name.
    pub function: String,
    /// Which argument, from 0 to 5.
    pub argument: usize,
    /// The program's function that returns a copy of the object it is given.
    pub copy: String,
    /// The program's function that takes an owner from the object it is given.
    pub release: String,
}

/// A function that does nothing outside of commands, if its argument lies in the state.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skip {
    /// Its name.
    pub function: String,
    /// Which argument, from 0 to 5.
    pub argument: usize,
    /// What it returns then.
    pub value: u64,
}

/// A function that returns a number, and does nothing.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Returns {
    /// Its name.
    pub function: String,
    /// What it returns.
    pub value: u64,
}

/// A function in whose place another one is called, with the first argument and a text: the program says that it does not do what is not durable.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instead {
    /// Its name.
    pub function: String,
    /// The other one.
    pub call: String,
    /// The text.
    pub text: String,
}

/// A function that does nothing, and whose reason is said: where the program's own files ask for it at the start, the program ends.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refuse {
    /// Its name.
    pub function: String,
    /// What it returns.
    pub value: u64,
    /// The reason and the way out.
    pub why: String,
}

/// A function that sends what a client is to have, its first argument. Where a command serves clients in its middle, it does nothing for those that are to have something of the batch, which is not
/// durable yet: the program sends that later.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// Its name.
    pub function: String,
    /// What it returns then.
    pub value: u64,
    /// The function that adds to what a client is to have, its first argument. What it allocates is the process's.
    pub queues: String,
    /// The function that a new client begins with, its first argument: one that has gone may have had its address.
    pub begins: String,
    /// The function in which a command serves clients. What it allocates is the process's.
    pub serves: String,
}

/// The program's own functions that allocate and free. In a command they are to lead to those of the C library: a program with an allocator of its own is refused.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allocator {
    /// Takes a number of bytes.
    pub allocate: String,
    /// Takes what the other one has returned.
    pub free: String,
    /// What is said of a program whose functions lead elsewhere: the reason and the way out.
    pub why: String,
}

/// A function that hands work to another thread: in a command the work is done at once, as another thread's stores would be lost.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AtOnce {
    /// Its name. Its first argument is a function that takes the address of an array.
    pub function: String,
    /// The argument that is the first one of the array, from 1 to 5.
    pub array: usize,
}

/// A function before which the batch is committed: with it the program begins to end, or to write its data to a file of its own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Commit {
    /// Its name.
    pub function: String,
}

/// A function that returns the number of bytes which the program uses: those of the state that was recovered are added.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Its name.
    pub function: String,
}

/// What commands allocate for the process.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Functions all of whose allocations are the process's.
    #[serde(default)]
    pub functions: Vec<String>,
    /// From a function up to another one: what this code allocates itself is the process's.
    #[serde(default)]
    pub code: Vec<[String; 2]>,
}

/// What must hold at the point.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Require {
    /// The condition.
    pub when: Condition,
    /// It is to not hold.
    #[serde(default)]
    pub not: bool,
    /// What is said if it is otherwise: the reason and the way out.
    pub why: String,
}

/// How the program itself writes its data to a file, and reads that: such a file is for any build of it. The program runs beside the one that serves, in a directory of its own, with a copy of the
/// state or with a new one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dump {
    /// They follow the program's own arguments: it is to listen at the socket only, and to write nothing but the file, and that when it is told to. SIGTERM ends it. `{directory}` is the directory of its own.
    pub arguments: Vec<String>,
    /// More of them, for builds of the program that know them.
    #[serde(default)]
    pub more: Vec<More>,
    /// The name of the socket in that directory.
    pub socket: String,
    /// The name of the file there, which a program with a new state reads at its start.
    pub file: String,
    /// It serves.
    pub ready: Exchange,
    /// It writes the file.
    pub save: Exchange,
}

/// Arguments that builds of the program know which use a library.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct More {
    /// A function of that library, which those builds ask the loader for.
    pub imports: String,
    /// The arguments.
    pub arguments: Vec<String>,
}

/// What is sent to a program, and what it answers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// What is sent.
    pub send: String,
    /// How the answer begins.
    pub answer: String,
    /// How the line begins by which it says that it is busy: it is asked again then.
    pub busy: Option<String>,
}

/// Why an adapter cannot be used.
#[derive(Clone, Debug)]
pub struct Wrong(String);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

/// The variable that asks the library, which is loaded into a program, whether it is: it writes [`ANSWER`] to its output then, and the program ends.
pub const PROBE: &str = "SPANDREL_DURABLE_PROBE";
/// See [`PROBE`].
pub const ANSWER: &str = "spandrel: the library is loaded\n";

/// Arguments that lie in registers.
pub const ARGUMENTS: usize = 6;
/// Bytes of an input at most.
pub const MOST_INPUT: usize = 4096;

impl Adapter {
    /// Reads an adapter.
    ///
    /// # Errors
    /// With the line and the reason.
    pub fn parse(text: &str) -> Result<Self, Wrong> {
        let adapter: Self = toml::from_str(text).map_err(|why| Wrong(why.to_string()))?;
        adapter.check().map_err(Wrong)?;
        Ok(adapter)
    }

    fn check(&self) -> Result<(), String> {
        let values = self.root.iter().flat_map(|root| {
            let count = match &root.count {
                Count::Value(value) => Some(value),
                Count::Number(_) => None,
            };
            [Some(&root.array), count]
        });
        let conditions = self.command.iter().flat_map(|command| &command.when);
        let required = self.require.iter().map(|require| &require.when);
        let conditions = conditions.chain(required);
        let without = values.flatten().map(|value| (value, false));
        let with = self.command.iter().flat_map(|command| &command.when);
        let with = with.map(|condition| (&condition.value, true));
        let at_point = self.require.iter().map(|require| (&require.when.value, false));
        for (value, has_arguments) in without.chain(with).chain(at_point) {
            value.check(has_arguments)?;
        }
        for condition in conditions {
            if condition.equals.is_some() && condition.equals_symbol.is_some() {
                return Err("a condition has both equals and equals_symbol; leave one".into());
            }
        }
        let arguments = self.input.iter().map(|rule| (&rule.function, rule.argument));
        let arguments = arguments
            .chain(self.adopt.iter().map(|rule| (&rule.function, rule.argument)))
            .chain(self.at_once.iter().map(|rule| (&rule.function, rule.array)))
            .chain(self.skip.iter().map(|rule| (&rule.function, rule.argument)));
        for (function, argument) in arguments {
            if argument >= ARGUMENTS {
                return Err(format!(
                    "{function}: argument {argument} lies on the stack; 0 to {} can be named",
                    ARGUMENTS - 1
                ));
            }
        }
        if let Some(input) =
            self.input.iter().find(|input| !(1..=MOST_INPUT).contains(&input.bytes))
        {
            return Err(format!(
                "{}: an input has 1 to {MOST_INPUT} bytes, not {}",
                input.function, input.bytes
            ));
        }
        if let Some(dump) = &self.dump {
            let is_name = |name: &str| !name.is_empty() && !name.contains(['/', '\0']);
            if let Some(name) = [&dump.socket, &dump.file].into_iter().find(|name| !is_name(name)) {
                return Err(format!("dump: {name:?} is not the name of a file in a directory"));
            }
            if let Some(told) =
                [&dump.ready, &dump.save].into_iter().find(|told| told.answer.is_empty())
            {
                return Err(format!("dump: how does the answer to {:?} begin?", told.send));
            }
        }
        if self.root.is_empty() {
            return Err(
                "an adapter has a root: by its roots a state is known as the program's".into()
            );
        }
        for root in &self.root {
            let fits = root.words.iter().all(|word| word.saturating_add(8) <= root.stride);
            let are_some = !root.words.is_empty() && root.object_bytes > 0;
            if !fits || !are_some || root.name.is_empty() {
                return Err(format!(
                    "root {:?}: it has a name, words that lie within an element of {} bytes, and objects of at least a byte",
                    root.name, root.stride
                ));
            }
        }
        let mut names: Vec<_> = self.functions().collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair.first() == pair.last()) {
            Some(pair) => Err(format!("{}: two rules are about it; leave one", pair.concat())),
            None => Ok(()),
        }
    }

    /// The functions whose entries rules are about.
    fn functions(&self) -> impl Iterator<Item = &str> {
        let point = std::iter::once(self.point.function.as_str());
        point
            .chain(self.input.iter().map(|rule| rule.function.as_str()))
            .chain(self.command.iter().map(|rule| rule.function.as_str()))
            .chain(self.adopt.iter().map(|rule| rule.function.as_str()))
            .chain(self.skip.iter().map(|rule| rule.function.as_str()))
            .chain(self.returns.iter().map(|rule| rule.function.as_str()))
            .chain(self.at_once.iter().map(|rule| rule.function.as_str()))
            .chain(self.instead.iter().map(|rule| rule.function.as_str()))
            .chain(self.refuse.iter().map(|rule| rule.function.as_str()))
            .chain(self.held.iter().flat_map(|rule| {
                [&rule.function, &rule.queues, &rule.begins, &rule.serves].map(String::as_str)
            }))
            .chain(self.commit.iter().map(|rule| rule.function.as_str()))
            .chain(self.counts.iter().map(|rule| rule.function.as_str()))
            .chain(self.process.functions.iter().map(String::as_str))
    }
}

impl Value {
    fn check(&self, has_arguments: bool) -> Result<(), String> {
        let are_one = self.symbol.is_some() != self.argument.is_some();
        if !are_one {
            return Err("a value has either a symbol or an argument".into());
        }
        if let Some(argument) = self.argument {
            if !has_arguments {
                return Err(
                    "a value of a root, or of what is required, has no arguments; name a symbol"
                        .into(),
                );
            }
            if argument >= ARGUMENTS {
                return Err(format!("argument {argument} lies on the stack; 0 to 5 can be named"));
            }
        }
        match self.bytes {
            1 | 2 | 4 | 8 => Ok(()),
            bytes => Err(format!("a word has 1, 2, 4 or 8 bytes, not {bytes}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_builtin_adapter_is_read() {
        for builtin in BUILTIN {
            let adapter = Adapter::parse(builtin.text);
            assert!(adapter.is_ok(), "{}: {}", builtin.name, adapter.unwrap_err());
            assert_eq!(adapter.unwrap().program.name, builtin.name);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let text = BUILTIN[0].text;
        let says = |from: &str, to: &str, words: &str| {
            assert!(text.contains(from), "{from}");
            let wrong = Adapter::parse(&text.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(wrong.contains(words), "{wrong}");
        };
        says("[point]", "[pint]", "pint");
        says("argument = 2", "argument = 6", "argument 6 lies on the stack");
        says("bytes = 16", "bytes = 0", "1 to 4096 bytes, not 0");
        says("bytes = 4 ", "bytes = 3 ", "1, 2, 4 or 8 bytes, not 3");
        says("words = [0, 8]", "words = [0, 80]", "root \"databases\"");
        says("file = \"dump.rdb\"", "file = \"../dump.rdb\"", "\"../dump.rdb\" is not the name");
        says("answer = \"+PONG\"", "answer = \"\"", "how does the answer to \"PING");
        says("\"dbSyncDelete\"", "\"dbAsyncDelete\"", "two rules are about it");
    }
}
