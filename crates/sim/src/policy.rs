//! Policies by name.

use crate::error::Error;
use serde::Serialize;
use spandrel_pageheap::Order;

/// A way to choose the huge page that a small span goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The shortest longest free range, then the most allocations: the paper's.
    RangeThenAllocations,
    /// The shortest longest free range, then the most used pages.
    RangeThenPages,
    /// The most allocations, then the shortest longest free range: fullness first.
    AllocationsThenRange,
    /// The free range that fits best, wherever it is.
    BestFit,
}

impl Policy {
    /// All of them, the paper's first.
    pub const ALL: [Self; 4] = [
        Self::RangeThenAllocations,
        Self::RangeThenPages,
        Self::AllocationsThenRange,
        Self::BestFit,
    ];

    /// Those that find a place in constant time.
    pub const FAST: [Self; 3] =
        [Self::RangeThenAllocations, Self::RangeThenPages, Self::AllocationsThenRange];

    /// The name that users type.
    pub fn name(self) -> &'static str {
        match self {
            Self::RangeThenAllocations => "range-then-allocations",
            Self::RangeThenPages => "range-then-pages",
            Self::AllocationsThenRange => "allocations-then-range",
            Self::BestFit => "best-fit",
        }
    }

    /// The policy of that name or alias.
    ///
    /// # Errors
    /// There is none.
    pub fn parse(name: &str) -> Result<Self, Error> {
        const ALIASES: [(&str, Policy); 3] = [
            ("lfr", Policy::RangeThenAllocations),
            ("fullness", Policy::AllocationsThenRange),
            ("bestfit", Policy::BestFit),
        ];
        let name = name.trim();
        let named = Self::ALL.into_iter().find(|p| p.name().eq_ignore_ascii_case(name));
        let alias = || ALIASES.into_iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|a| a.1);
        named.or_else(alias).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|p| p.name()).collect();
            Error::new(format!(
                "unknown policy '{name}'; there are {} (lfr is the first, fullness the third)",
                names.join(", ")
            ))
        })
    }

    /// What the page heap calls it.
    pub fn order(self) -> Order {
        match self {
            Self::RangeThenAllocations => Order::RangeThenAllocations,
            Self::RangeThenPages => Order::RangeThenPages,
            Self::AllocationsThenRange => Order::AllocationsThenRange,
            Self::BestFit => Order::BestFit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_aliases() {
        for policy in Policy::ALL {
            assert_eq!(Policy::parse(policy.name()), Ok(policy));
        }
        assert_eq!(Policy::parse(" LFR"), Ok(Policy::RangeThenAllocations));
        let refused = Policy::parse("worst-fit").unwrap_err();
        assert!(refused.message.contains("'worst-fit'") && refused.message.contains("best-fit"));
    }
}
