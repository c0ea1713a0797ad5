//! The paper's figures, drawn again with the page heap as it is. One file per figure; each says
//! what the paper shows, what is simulated for it, and what is to be seen.

mod cache;
mod donation;
mod drained;
mod filler;
mod slack;

use crate::error::Error;
use crate::plot::Chart;
use crate::records::Records;
use spandrel_pageheap::{PageHeap, Settings};

/// A figure that can be reproduced on paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Figure {
    /// Fig. 9: a loop that drains a huge page each time.
    Drained,
    /// Fig. 10: saw-toothed demand on the cache.
    Cache,
    /// Fig. 11: the filler's policies after a drop of demand.
    Filler,
    /// Fig. 12: slack behind spans of 1.1 MiB.
    Slack,
    /// The loop at the end of section 4.4: donated tails.
    Donation,
}

/// A figure as numbers, words and a picture.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// Its name, for files.
    pub name: &'static str,
    /// What it shows.
    pub title: String,
    /// What the paper says about it, and what was simulated.
    pub about: String,
    /// The columns of its table.
    pub header: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
    /// What is to be seen.
    pub findings: Vec<String>,
    /// The picture.
    pub chart: Chart,
}

impl Figure {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Drained, Self::Cache, Self::Filler, Self::Slack, Self::Donation];

    /// What users type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Drained => "9",
            Self::Cache => "10",
            Self::Filler => "11",
            Self::Slack => "12",
            Self::Donation => "donation",
        }
    }

    /// The figure of that name.
    ///
    /// # Errors
    /// It cannot be reproduced on paper, or there is none.
    pub fn parse(name: &str) -> Result<Self, Error> {
        let name = name.trim();
        if let Some(figure) = Self::ALL.into_iter().find(|f| f.name().eq_ignore_ascii_case(name)) {
            return Ok(figure);
        }
        let why = match name.parse::<u32>() {
            Ok(1..=3 | 6 | 8) => "is a drawing of how things work and shows no data",
            Ok(4 | 5) => {
                "shows what Google's programs allocate, which is measured there and not simulated"
            }
            Ok(7) => "is the algorithm itself",
            Ok(13..=15) => {
                "shows programs on real machines: huge pages and TLB misses need hardware"
            }
            _ => "is not in the paper",
        };
        let names: Vec<&str> = Self::ALL.iter().map(|f| f.name()).collect();
        Err(Error::new(format!("figure '{name}' {why}; there are {}", names.join(", "))))
    }

    /// Draws it. `progress` is told now and then how much of it is done, from 0 to 1.
    ///
    /// # Errors
    /// None that should happen.
    pub fn draw(self, progress: &mut dyn FnMut(f64)) -> Result<Drawn, Error> {
        match self {
            Self::Drained => drained::draw(),
            Self::Cache => cache::draw(),
            Self::Filler => filler::draw(progress),
            Self::Slack => slack::draw(),
            Self::Donation => donation::draw(),
        }
    }
}

/// Runs something on a fresh page heap of `hugepages` huge pages.
fn on_fresh<T>(hugepages: usize, settings: Settings, work: impl FnOnce(PageHeap) -> T) -> T {
    let mut records = Records::new(hugepages);
    work(PageHeap::new(records.as_mut(), settings))
}

/// What a page heap that has room must do.
fn no_room() -> Error {
    Error::new("the page heap of this figure is full, which should not happen")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_names() {
        for figure in Figure::ALL {
            assert_eq!(Figure::parse(figure.name()), Ok(figure));
        }
        assert!(Figure::parse("13").unwrap_err().message.contains("hardware"));
        assert!(Figure::parse("99").unwrap_err().message.contains("not in the paper"));
    }
}
