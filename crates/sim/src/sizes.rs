//! Which spans a simulated program asks for, how often, and how long they live.

use crate::error::Error;
use crate::table::Table;
use spandrel_pages::Length;

/// The largest span: a terabyte.
const PAGES_MAX: u32 = 1 << 27;
/// Rows of a distribution.
const ROWS_MAX: usize = 4096;
/// The largest alignment: 32 GiB.
const ALIGN_MAX: u32 = 1 << 22;

/// Spans that are alike.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Class {
    /// How many pages.
    pub pages: u32,
    /// The first page's number is to be a multiple of this power of two.
    pub align: u32,
    /// How many objects one is for.
    pub objects: u32,
    /// Their share of all requests, relative to that of the others.
    pub weight: f64,
    /// How long one lives on average, in seconds; exponentially distributed.
    pub lifetime_s: f64,
}

/// A distribution of spans.
#[derive(Clone, PartialEq, Debug)]
pub struct Sizes {
    classes: Vec<Class>,
}

impl Sizes {
    /// The built-in distribution as text, to begin one's own with.
    pub const BUILT_IN: &str = include_str!("../sizes/default.csv");

    /// The built-in distribution.
    pub fn built_in() -> Self {
        Self::parse(Self::BUILT_IN).expect("a test reads it")
    }

    /// These classes.
    ///
    /// # Errors
    /// There are none, or one has no pages, weight or lifetime.
    pub fn new(classes: Vec<Class>) -> Result<Self, Error> {
        if classes.is_empty() {
            return Err(Error::new("a distribution without spans; name at least one"));
        }
        let positive = |value: f64| value.is_finite() && value > 0.0;
        for class in &classes {
            if class.pages == 0 || class.pages > PAGES_MAX {
                return Err(Error::new(format!(
                    "a span of {} pages; 1 to {PAGES_MAX}",
                    class.pages
                )));
            }
            if !positive(class.weight) || !positive(class.lifetime_s) {
                return Err(Error::new("a weight or lifetime that is not above zero"));
            }
            if !class.align.is_power_of_two() || class.align > ALIGN_MAX {
                return Err(Error::new(format!(
                    "an alignment of {} pages; powers of two to {ALIGN_MAX}",
                    class.align
                )));
            }
        }
        Ok(Self { classes })
    }

    /// Reads columns `pages` or `bytes`, `weight`, `lifetime_s`, and, if they are there, `objects`
    /// and `align_pages`.
    ///
    /// # Errors
    /// The first line that cannot be understood.
    pub fn parse(text: &str) -> Result<Self, Error> {
        const COLUMNS: [&str; 6] =
            ["pages", "bytes", "weight", "lifetime_s", "objects", "align_pages"];
        let table = Table::parse(text, &COLUMNS, ROWS_MAX)?;
        if table.has("pages") == table.has("bytes") {
            return Err(
                table.refuse("sizes are to be in a column 'pages' or in a column 'bytes'".into())
            );
        }
        table.require(&["weight", "lifetime_s"])?;
        let mut classes = Vec::new();
        for row in table.rows() {
            let pages = match (table.whole(row, "pages", 1, PAGES_MAX)?, table.bytes(row, "bytes")?)
            {
                (Some(pages), _) => pages,
                (None, bytes) => {
                    match bytes.and_then(|b| Length::of_bytes(usize::try_from(b).ok()?)) {
                        Some(Length(pages)) if (1..=PAGES_MAX).contains(&pages) => pages,
                        _ => return Err(Error::at(row.line, "bytes are to be from 1 to 1TiB")),
                    }
                }
            };
            let align = table.whole(row, "align_pages", 1, ALIGN_MAX)?.unwrap_or(1);
            if !align.is_power_of_two() {
                return Err(Error::at(
                    row.line,
                    format!("align_pages is {align}, which is no power of two"),
                ));
            }
            classes.push(Class {
                pages,
                align,
                objects: table.whole(row, "objects", 1, u32::MAX)?.unwrap_or(1),
                weight: table.number(row, "weight", 1e-12, 1e12)?.unwrap_or(1.0),
                lifetime_s: table.number(row, "lifetime_s", 1e-6, 1e9)?.unwrap_or(1.0),
            });
        }
        Self::new(classes)
    }

    /// The classes.
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// Only spans up to `pages`.
    ///
    /// # Errors
    /// There are none.
    pub fn up_to(&self, pages: u32) -> Result<Self, Error> {
        Self::new(self.classes.iter().filter(|class| class.pages <= pages).copied().collect())
    }

    /// All lifetimes, times this.
    #[must_use]
    pub fn with_lifetimes_times(mut self, factor: f64) -> Self {
        for class in &mut self.classes {
            class.lifetime_s *= factor;
        }
        self
    }

    /// The sum of a quantity over all classes, each by its share of requests.
    fn per_request(&self, quantity: impl Fn(&Class) -> f64) -> f64 {
        let all: f64 = self.classes.iter().map(|class| class.weight).sum();
        self.classes.iter().map(|class| class.weight / all * quantity(class)).sum()
    }

    /// What a request keeps occupied, on average: pages times seconds. By Little's law, requests
    /// per second times this is the size of the heap.
    pub fn page_seconds(&self) -> f64 {
        self.per_request(|class| f64::from(class.pages) * class.lifetime_s)
    }

    /// The mean lifetime of a request, in seconds.
    pub fn lifetime_s(&self) -> f64 {
        self.per_request(|class| class.lifetime_s)
    }

    /// Pages of the average span that lives.
    pub fn mean_live_pages(&self) -> f64 {
        self.page_seconds() / self.lifetime_s()
    }

    /// Pages of the average span that is asked for.
    pub fn mean_pages(&self) -> f64 {
        self.per_request(|class| class.pages.into())
    }

    /// Pages of the largest.
    pub fn largest(&self) -> u32 {
        self.classes.iter().map(|class| class.pages).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_distribution_follows_the_paper() {
        let sizes = Sizes::built_in();
        let all: f64 = sizes.page_seconds();
        let total: f64 = sizes.classes().iter().map(|c| c.weight).sum();
        let live = |below: u32| -> f64 {
            let part = sizes.classes().iter().filter(|c| c.pages < below);
            part.map(|c| c.weight / total * f64::from(c.pages) * c.lifetime_s).sum::<f64>() / all
        };
        // Fig. 5: 80 % of bytes in spans below a huge page, most of them in short spans.
        assert!((0.75..0.85).contains(&live(256)), "{}", live(256));
        assert!((0.4..0.65).contains(&live(3)), "{}", live(3));
    }

    #[test]
    fn sizes_may_be_bytes() {
        let sizes =
            Sizes::parse("bytes,weight,lifetime_s,objects\n8KiB,1,2,64\n8193,3,1,1\n").unwrap();
        let pages: Vec<u32> = sizes.classes().iter().map(|c| c.pages).collect();
        assert_eq!(pages, [1, 2]);
        assert_eq!(sizes.page_seconds(), 0.25 * 2.0 + 0.75 * 2.0);
        assert_eq!(sizes.mean_pages(), 1.75);
    }

    #[test]
    fn nonsense_is_refused_with_its_line() {
        for (text, line) in [
            ("weight,lifetime_s\n1,1", 1),
            ("pages,bytes,weight,lifetime_s\n1,1,1,1", 1),
            ("pages,weight\n1,1", 1),
            ("pages,weight,lifetime_s\n1,1,1\n0,1,1", 3),
            ("pages,weight,lifetime_s\n1,0,1", 2),
            ("pages,weight,lifetime_s\n1,1,-1", 2),
            ("pages,weight,lifetime_s\n1,1,nan", 2),
            ("pages,weight,lifetime_s\n1,1,inf", 2),
            ("bytes,weight,lifetime_s\n0,1,1", 2),
            ("bytes,weight,lifetime_s\n2TiB,1,1", 2),
            ("pages,weight,lifetime_s,align_pages\n1,1,1,3", 2),
        ] {
            assert_eq!(Sizes::parse(text).unwrap_err().line, Some(line), "{text:?}");
        }
    }
}
