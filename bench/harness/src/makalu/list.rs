//! What can be measured, and how much is done at a scale.

use serde::Serialize;
use spandrel_console::Failure;

/// The names of all parts, in the order in which they are measured.
pub const ALL: [&str; 12] = [
    "larson",
    "threadtest",
    "prod-con",
    "sh6bench",
    "pair",
    "blocks",
    "resur",
    "open",
    "checkpoint",
    "barnes",
    "queens",
    "cholesky",
];

/// The scale without `--scale`, and with `--quick`.
pub const SCALE: f64 = 0.1;
pub const SCALE_QUICK: f64 = 0.02;
/// Below this it is a trial whether everything works.
const SCALE_LEAST: f64 = 0.01;

/// How much is done.
#[derive(Clone, Debug, Serialize)]
pub struct Sizes {
    /// Milliseconds of a benchmark that goes on for a given time.
    pub millis: u64,
    /// Pairs in a block of `pair`.
    pub pairs: u64,
    /// MiB allocated before the crash.
    pub resur: &'static [u64],
    /// MiB of heaps that are opened and closed.
    pub open: &'static [u64],
    /// Pages of a checkpoint, and how many a process makes.
    pub pages: u64,
    pub checkpoints: u64,
    /// Barnes-Hut: bodies and steps.
    pub bodies: u64,
    pub steps: u64,
    /// Queens on a board.
    pub board: u64,
    /// Rows of the matrix.
    pub order: u64,
    /// Threads of the applications.
    pub app_threads: &'static [u64],
    /// MiB held in reserve between runs of small objects.
    pub reserve: u64,
    /// Seconds after which a run is given up.
    pub patience: u64,
}

impl Sizes {
    /// Times are in proportion to the scale; sizes come in four steps, so that tables can be compared.
    pub fn at(scale: f64) -> Self {
        let steps = if scale >= 1.0 {
            Self::PAPER
        } else if scale >= SCALE {
            Self::USUAL
        } else if scale >= SCALE_LEAST {
            Self::QUICK
        } else {
            Self::LEAST
        };
        Self { millis: ((Self::PAPER.millis as f64 * scale).round() as u64).max(1), ..steps }
    }

    /// As the paper has it. How many steps its bodies take it does not say.
    const PAPER: Self = Self {
        millis: 10_000,
        pairs: 5000,
        resur: &[200, 400, 600, 800, 1024, 2048, 3072],
        open: &[64, 1024, 3072],
        pages: 1024,
        checkpoints: 80,
        bodies: 100_000,
        steps: 2,
        board: 16,
        order: 1000,
        app_threads: &[1, 2, 4],
        reserve: 1024,
        patience: 900,
    };

    const USUAL: Self = Self {
        resur: &[200, 400, 600, 800, 1024],
        open: &[64, 1024],
        board: 13,
        app_threads: &[1, 2],
        reserve: 256,
        patience: 90,
        ..Self::PAPER
    };

    const QUICK: Self = Self {
        resur: &[200],
        checkpoints: 40,
        bodies: 20_000,
        board: 11,
        order: 400,
        ..Self::USUAL
    };

    const LEAST: Self = Self {
        pairs: 50,
        resur: &[8],
        open: &[8],
        pages: 64,
        checkpoints: 3,
        bodies: 200,
        steps: 1,
        board: 6,
        order: 40,
        reserve: 0,
        ..Self::QUICK
    };
}

/// The parts of these names, in the order of the list; all if none are named.
pub fn choose(names: Option<&[String]>) -> Result<Vec<&'static str>, Failure> {
    let Some(names) = names else { return Ok(ALL.to_vec()) };
    if let Some(unknown) = names.iter().find(|name| !ALL.contains(&name.as_str())) {
        return Err(Failure::refused(format!(
            "--only: the suite 'heap' has no part '{unknown}'; there are: {}",
            ALL.join(", ")
        )));
    }
    Ok(ALL.iter().filter(|known| names.iter().any(|name| name == *known)).copied().collect())
}

/// The arguments of the worker: a suite and numbers.
pub fn words(suite: &str, given: &[(&str, u64)]) -> Vec<String> {
    let given = given.iter().flat_map(|(name, value)| [(*name).to_string(), value.to_string()]);
    std::iter::once(suite.to_string()).chain(given).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_1_is_the_papers() {
        let sizes = Sizes::at(1.0);
        assert_eq!((sizes.millis, sizes.bodies, sizes.board), (10_000, 100_000, 16));
        assert_eq!((sizes.order, sizes.resur.last()), (1000, Some(&3072)));
    }

    #[test]
    fn smaller_scales_do_less() {
        let (usual, quick) = (Sizes::at(SCALE), Sizes::at(SCALE_QUICK));
        assert_eq!((usual.millis, usual.resur.last(), usual.board), (1000, Some(&1024), 13));
        assert_eq!((quick.millis, quick.resur, quick.order), (200, &[200][..], 400));
        assert_eq!(Sizes::at(1e-9).millis, 1);
        assert_eq!(Sizes::at(0.001).resur, [8]);
    }

    #[test]
    fn chosen_by_name() {
        let names = ["queens", "larson"].map(String::from);
        assert_eq!(choose(Some(&names)).unwrap(), ["larson", "queens"]);
        let failure = choose(Some(&["nothing".to_string()])).unwrap_err();
        assert!(failure.code == 2 && failure.message.contains("'nothing'"));
        assert!(failure.message.contains("resur"));
        assert_eq!(choose(None).unwrap().len(), ALL.len());
    }
}
