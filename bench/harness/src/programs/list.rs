//! The allocation programs, and how much each is given to do.

use spandrel_console::Failure;

/// A program with arguments.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// What tables call it; in the field's own suites it has the same name.
    pub name: &'static str,
    /// The executable.
    pub file: &'static str,
    /// Arguments in both jobs. `{n}` is the number of threads, `{half}` half of it.
    common: &'static str,
    /// Arguments of the small job: some tenths of a second.
    quick: &'static str,
    /// Arguments of the full one: a second or two.
    full: &'static str,
}

const fn program(
    name: &'static str,
    file: &'static str,
    common: &'static str,
    quick: &'static str,
    full: &'static str,
) -> Program {
    Program { name, file, common, quick, full }
}

/// Real programs first, then stress.
pub const ALL: &[Program] = &[
    program("cfrac", "cfrac", "", "bits=80 base=120", "bits=100 base=200"),
    program("espresso", "espresso", "", "functions=2", "functions=10"),
    program("barnes", "barnes", "threads={n}", "bodies=10000 steps=2", "bodies=40000 steps=2"),
    program(
        "larson",
        "larson",
        "threads={n} slots=5000",
        "generations=20 steps=100000",
        "generations=60",
    ),
    program(
        "larson-sized",
        "larson",
        "threads={n} slots=5000 sized=1",
        "generations=20 steps=100000",
        "generations=60",
    ),
    program("threadtest", "threadtest", "threads={n}", "rounds=100", "rounds=400"),
    program("prod-con", "prod-con", "pairs={half}", "objects=1000000", "objects=4000000"),
    program("xmalloc-test", "xmalloc-test", "threads={half} size=0", "batches=300", "batches=1200"),
    program("sh6bench", "sh6bench", "threads={n}", "passes=40", "passes=160"),
    program("sh8bench", "sh8bench", "threads={n}", "passes=40", "passes=160"),
    program("mstress", "mstress", "threads={n}", "phases=16", "phases=80"),
    program("rptest", "rptest", "threads={n}", "loops=200", "loops=1000"),
    program("alloc-test1", "alloc-test", "threads=1", "steps=3000000", "steps=12000000"),
    program("alloc-testN", "alloc-test", "threads={n}", "steps=2000000", "steps=8000000"),
    program("malloc-large", "malloc-large", "", "steps=150", "steps=600"),
    program("glibc-simple", "glibc-simple", "", "objects=500000", "objects=2000000"),
    program("glibc-thread", "glibc-thread", "threads={n}", "steps=2000000", "steps=8000000"),
    program("cache-scratch", "cache-scratch", "threads={n}", "writes=20000", "writes=60000"),
    program("cache-thrash", "cache-thrash", "threads={n}", "writes=20000", "writes=60000"),
    program("mleak", "mleak", "", "threads=3000", "threads=15000"),
    program("server-life", "server-life", "threads={n}", "rate=100 idle=50", "rate=500"),
];

/// Threads where a program has as many as there are processors. With one nothing
/// would be shared, and beyond sixteen the programs' own tables weigh.
const THREADS_MIN: usize = 2;
const THREADS_MAX: usize = 16;

impl Program {
    /// The words behind the command.
    pub fn words(&self, quick: bool, processors: usize) -> Vec<String> {
        let threads = processors.clamp(THREADS_MIN, THREADS_MAX);
        let size = if quick { self.quick } else { self.full };
        let fill = |word: &str| {
            word.replace("{n}", &threads.to_string()).replace("{half}", &(threads / 2).to_string())
        };
        self.common.split(' ').chain(size.split(' ')).filter(|w| !w.is_empty()).map(fill).collect()
    }
}

/// The programs of these names, in the order of the list; all if none are named.
pub fn choose(names: Option<&[String]>) -> Result<Vec<Program>, Failure> {
    let Some(names) = names else { return Ok(ALL.to_vec()) };
    if let Some(unknown) = names.iter().find(|name| !ALL.iter().any(|p| p.name == **name)) {
        let known: Vec<&str> = ALL.iter().map(|program| program.name).collect();
        return Err(Failure::refused(format!(
            "--only: there is no program '{unknown}'; there are: {}",
            known.join(", ")
        )));
    }
    Ok(ALL.iter().filter(|p| names.iter().any(|name| name == p.name)).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_words_complete() {
        for (at, one) in ALL.iter().enumerate() {
            assert!(ALL[at + 1..].iter().all(|other| other.name != one.name), "{}", one.name);
            for quick in [false, true] {
                let words = one.words(quick, 4);
                assert!(!words.is_empty() && words.iter().all(|w| w.contains('=')), "{words:?}");
                assert!(words.iter().all(|word| !word.contains('{')), "{words:?}");
            }
        }
    }

    #[test]
    fn threads_follow_processors() {
        let words = |name: &str, processors| {
            ALL.iter().find(|p| p.name == name).unwrap().words(true, processors).remove(0)
        };
        assert_eq!(words("larson", 1), "threads=2");
        assert_eq!(words("larson", 8), "threads=8");
        assert_eq!(words("larson", 64), "threads=16");
        assert_eq!(words("prod-con", 2), "pairs=1");
    }

    #[test]
    fn chosen_by_name() {
        let names = |list: &[&str]| list.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let chosen = choose(Some(&names(&["mleak", "cfrac"]))).unwrap();
        assert_eq!(chosen.iter().map(|p| p.name).collect::<Vec<_>>(), ["cfrac", "mleak"]);
        let failure = choose(Some(&names(&["nothing"]))).unwrap_err();
        assert!(failure.code == 2 && failure.message.contains("server-life"));
        assert_eq!(choose(None).unwrap().len(), ALL.len());
    }
}
