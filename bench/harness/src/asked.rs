//! What is to be measured, and how: the options of the command.

use crate::options::Allocators;
use crate::registry::SUITES;
use crate::suite::Suite;
use spandrel_measure::peers::Wanted;
use std::fmt;
use std::path::PathBuf;

/// Options of a measurement. The defaults are those of the command.
pub struct Asked {
    /// The suite; none: all of [`SUITES`] that are part of `all`.
    pub suite: Option<&'static dyn Suite>,
    /// Fewer rounds and smaller jobs.
    pub quick: bool,
    /// Measured rounds.
    pub runs: Option<u32>,
    /// Where everything that was measured is written as JSON; `-` is standard output.
    pub json: Option<PathBuf>,
    /// Where the picture is written.
    pub out: Option<PathBuf>,
    /// Only these peers.
    pub peers: Option<Vec<String>>,
    /// Modes of Spandrel, separated by commas or semicolons.
    pub modes: String,
    /// Only these parts of the suite.
    pub only: Option<Vec<String>>,
    /// The part of what a paper did.
    pub scale: Option<f64>,
    /// Whether profiles are trained first.
    pub trained: bool,
    /// Where the tables are written as Markdown.
    pub markdown: Option<PathBuf>,
    /// Whether figures are held against the project's targets.
    pub targets: bool,
    /// The library to measure.
    pub library: Option<PathBuf>,
}

/// The default of [`Asked::modes`].
pub const MODES: &str = "auto";

impl Default for Asked {
    fn default() -> Self {
        Self {
            suite: None,
            quick: false,
            runs: None,
            json: None,
            out: None,
            peers: None,
            modes: MODES.into(),
            only: None,
            scale: None,
            trained: false,
            markdown: None,
            targets: false,
            library: None,
        }
    }
}

impl fmt::Debug for Asked {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suite = self.suite.map(|suite| suite.name());
        out.debug_struct("Asked").field("suite", &suite).finish_non_exhaustive()
    }
}

impl Asked {
    /// The suites to measure.
    pub(crate) fn suites(&self) -> Vec<&'static dyn Suite> {
        match self.suite {
            Some(one) => vec![one],
            None => SUITES.into_iter().filter(|suite| suite.options().is_in_all).collect(),
        }
    }

    /// The allocators that these options choose.
    pub(crate) fn wanted(&self) -> Wanted<'_> {
        let allocators =
            self.suite.map_or(Allocators::Installed, |suite| suite.options().allocators);
        let has_modes = !matches!(allocators, Allocators::Own { preloads: false, .. });
        Wanted {
            peers: self.peers.as_deref(),
            modes: has_modes.then_some(self.modes.as_str()),
            library: self.library.as_deref(),
            names_missing: matches!(allocators, Allocators::Installed),
        }
    }
}
