//! Decision tables: a mode compiled to one byte per operation and size class.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use spandrel_pages::{AllocatorId, CLASS_COUNT, KIB, SizeClass};

use crate::{Available, Mode, Template};

/// What a table is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Operation {
    /// A new object of the size.
    Allocate = 0,
    /// An object grows to the size.
    Grow = 1,
}

const OPERATIONS: usize = 2;

/// One byte: an [`AllocatorId`] in the low bits and, for the slow way, flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision(pub u8);

impl Decision {
    const ID: u8 = 0x07;
    /// Page-mapped if a warm slot is at hand, else the named allocator.
    pub const IF_WARM: u8 = 0x08;
    /// The object's allocation counter decides between the named allocator and
    /// pages.
    pub const BY_COUNTER: u8 = 0x10;
    /// A boundary of the template lies inside the class: look at the size.
    pub const EXACT: u8 = 0x20;
    /// Nothing has been decided yet: the library has not started.
    pub const UNSET: u8 = 0x40;
    /// The request is to be counted.
    pub const COUNTED: u8 = 0x80;

    /// The allocator, flags aside.
    pub const fn allocator(self) -> AllocatorId {
        match AllocatorId::from_byte(self.0 & Self::ID) {
            Some(id) => id,
            None => AllocatorId::Sys,
        }
    }

    /// Whether [`Self::IF_WARM`] is the only flag.
    #[inline(always)]
    pub const fn is_plainly_if_warm(self) -> bool {
        self.0 & !Self::ID == Self::IF_WARM
    }

    /// Whether a flag is set.
    pub const fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }
}

/// Growing objects of at least this size take a warm slot when there is one:
/// below two pages a copy is cheaper than a slot.
const WARM_FROM: usize = 8 * KIB;
/// From here on objects are page-mapped in `auto`; `docs/realloc.md` has the
/// measurements.
const MAPPED_FROM: usize = 128 * KIB;

/// A compiled mode.
#[repr(C, align(64))]
pub struct Table {
    bytes: [[AtomicU8; CLASS_COUNT]; OPERATIONS],
}

impl Table {
    /// A table that sends every request the slow way, which starts the library.
    pub const fn unset() -> Self {
        Table {
            bytes: [const { [const { AtomicU8::new(Decision::UNSET) }; CLASS_COUNT] }; OPERATIONS],
        }
    }

    /// The decision for a request of `size` bytes.
    #[inline(always)]
    pub fn decide(&self, operation: Operation, size: usize) -> Decision {
        let row = &self.bytes[operation as usize];
        Decision(row[SizeClass::of(size).index()].load(Relaxed))
    }

    /// Compiles `mode` into this table. `resolve` finds the exact decision for
    /// a class that a boundary cuts; see [`exact`].
    pub fn compile(&self, mode: &Mode, available: Available, counted: bool) {
        for operation in [Operation::Allocate, Operation::Grow] {
            for (index, byte) in self.bytes[operation as usize].iter().enumerate() {
                let Some(class) = SizeClass::from_index(index) else {
                    continue;
                };
                let first = exact(mode, available, operation, class.first());
                let last = exact(mode, available, operation, class.last());
                let cut = cuts(mode, class);
                let mut decision = if first == last && !cut {
                    first.0
                } else {
                    Decision::EXACT
                };
                if counted {
                    decision |= Decision::COUNTED;
                }
                byte.store(decision, Relaxed);
            }
        }
    }
}

/// Whether a template's boundary lies strictly inside `class`.
fn cuts(mode: &Mode, class: SizeClass) -> bool {
    let Mode::Template(template) = mode else {
        return false;
    };
    let inside = |to: usize| class.first() < to && to <= class.last();
    template
        .ranges()
        .iter()
        .any(|range| range.to != usize::MAX && inside(range.to))
}

/// The decision for one size, from the mode itself.
pub fn exact(mode: &Mode, available: Available, operation: Operation, size: usize) -> Decision {
    let plain = |id: AllocatorId| Decision(id as u8);
    match mode {
        Mode::Only(id) => plain(*id),
        Mode::Template(template) => plain(template.decide(size)),
        Mode::Preset => plain(Template::preset(available).decide(size)),
        Mode::Switch(switch) if size >= switch.point => plain(AllocatorId::Mmap),
        Mode::Switch(switch) => match operation {
            Operation::Allocate => plain(switch.base),
            Operation::Grow => Decision(switch.base as u8 | Decision::BY_COUNTER),
        },
        Mode::Auto if size >= MAPPED_FROM => plain(AllocatorId::Mmap),
        Mode::Auto if operation == Operation::Grow && size >= WARM_FROM => {
            Decision(available.small() as u8 | Decision::IF_WARM)
        }
        Mode::Auto => plain(available.small()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_mode;
    use proptest::prelude::*;

    fn table(mode: &str) -> Table {
        let table = Table::unset();
        let all = AllocatorId::ALL
            .into_iter()
            .fold(Available::BASE, Available::with);
        table.compile(&parse_mode(mode).unwrap(), all, false);
        table
    }

    #[test]
    fn an_unset_table_decides_nothing() {
        assert!(
            Table::unset()
                .decide(Operation::Allocate, 5)
                .has(Decision::UNSET)
        );
    }

    #[test]
    fn a_boundary_inside_a_class_is_looked_at() {
        let table = table("template=0-1001:sys,1001-1003:mimalloc,1003-:mmap");
        assert!(table.decide(Operation::Allocate, 1000).has(Decision::EXACT));
        assert_eq!(
            table.decide(Operation::Allocate, 100).allocator(),
            AllocatorId::Sys
        );
        assert_eq!(
            table.decide(Operation::Allocate, 2000).allocator(),
            AllocatorId::Mmap
        );
    }

    #[test]
    fn switch_counts_below_its_point_only() {
        let table = table("switch=jemalloc,point=64K");
        let grow = table.decide(Operation::Grow, 1000);
        assert!(grow.has(Decision::BY_COUNTER));
        assert_eq!(grow.allocator(), AllocatorId::Jemalloc);
        assert_eq!(
            table.decide(Operation::Allocate, 1000).0,
            AllocatorId::Jemalloc as u8
        );
        assert_eq!(
            table.decide(Operation::Grow, 65536).0,
            AllocatorId::Mmap as u8
        );
    }

    proptest! {
        #[test]
        fn a_table_agrees_with_its_template(
            a in 1usize..1 << 20, b in 1usize..1 << 20, sizes in prop::collection::vec(0usize..1 << 21, 50),
        ) {
            prop_assume!(a < b);
            let text = std::format!("template=0-{a}:jemalloc,{a}-{b}:sys,{b}-:mmap");
            let mode = parse_mode(&text).unwrap();
            let compiled = table(&text);
            for size in sizes.into_iter().chain([a - 1, a, b - 1, b]) {
                let exact = exact(&mode, Available::BASE, Operation::Allocate, size);
                let decided = compiled.decide(Operation::Allocate, size);
                prop_assert!(decided == exact || decided.0 == Decision::EXACT);
            }
        }
    }
    extern crate std;
}
