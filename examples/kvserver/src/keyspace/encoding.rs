//! The records of the one ordered map that has everything.
//!
//! | record | key | value |
//! |---|---|---|
//! | a key of the client | `K`, hash of the key, the key | type, time of expiry, and a string's bytes or a collection's [`Head`] |
//! | an element | `E`, number of the collection, then as below | as below |
//! | a time of expiry | `X`, time, the key | - |
//! | a deleted collection that has elements left | `G`, number of the collection | - |
//! | the next collection's number | `N` | the number |
//! | the seed of all hashes | `S` | the seed |
//!
//! | element of | rest of its key | value |
//! |---|---|---|
//! | a hash | hash of the field, the field | the value |
//! | a set | hash of the member, the member | - |
//! | a sorted set | 0, hash of the member, the member | the score |
//! | a sorted set, again | 1, score, the member | - |
//! | a list | index | the element |
//!
//! Numbers are of 8 bytes, the highest first, so that their order is that of the bytes. Keys, fields and members lie in the order of their
//! hashes: a cursor of `SCAN` is a hash, and stays right whatever is added and removed. A number of a collection is never used again.

use std::ops::Bound;

use twox_hash::XxHash64;

/// Milliseconds since 1970 of a key that does not expire.
pub const NEVER: u64 = 0;

/// The index of a list's first element: half of all are before it.
pub const MIDDLE: u64 = 1 << 63;

/// What a key of the client is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Text,
    Hash,
    Set,
    Sorted,
    List,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        [Self::Text, Self::Hash, Self::Set, Self::Sorted, Self::List]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }

    /// As `TYPE` says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Hash => "hash",
            Self::Set => "set",
            Self::Sorted => "zset",
            Self::List => "list",
        }
    }
}

/// The record of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    pub kind: Kind,
    /// Milliseconds since 1970, or [`NEVER`].
    pub expiry: u64,
    /// A string's bytes, or a [`Head`].
    pub body: &'a [u8],
}

impl<'a> Record<'a> {
    /// `None`: the bytes are no record.
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (expiry, body) = rest.split_first_chunk()?;
        Some(Self { kind: Kind::of(*kind)?, expiry: u64::from_be_bytes(*expiry), body })
    }

    pub fn bytes(&self) -> Vec<u8> {
        joined(&[&[self.kind as u8], &self.expiry.to_be_bytes(), self.body])
    }
}

/// What the record of a collection says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// The collection's number.
    pub id: u64,
    /// A list's first index; else 0.
    pub begin: u64,
    /// Behind a list's last index; else the number of elements.
    pub end: u64,
}

impl Head {
    pub fn len(&self) -> u64 {
        self.end - self.begin
    }

    /// `None`: the bytes are no head.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks::<8>() else { return None };
        let [id, begin, end] = *<&[[u8; 8]; 3]>::try_from(words).ok()?;
        let [id, begin, end] = [id, begin, end].map(u64::from_be_bytes);
        (begin <= end).then_some(Self { id, begin, end })
    }

    pub fn bytes(&self) -> Vec<u8> {
        joined(&[&self.id.to_be_bytes(), &self.begin.to_be_bytes(), &self.end.to_be_bytes()])
    }
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// The hash that keys, fields and members are ordered by. Never 0, which a cursor has at its end.
pub fn hash(seed: u64, bytes: &[u8]) -> u64 {
    XxHash64::oneshot(seed, bytes).max(1)
}

/// The first bytes of all records of clients' keys.
pub const KEYS: &[u8] = b"K";
pub const EXPIRIES: &[u8] = b"X";
pub const GARBAGE: &[u8] = b"G";
pub const NUMBER: &[u8] = b"N";
pub const SEED: &[u8] = b"S";

pub fn key(seed: u64, key: &[u8]) -> Vec<u8> {
    joined(&[KEYS, &hash(seed, key).to_be_bytes(), key])
}

pub fn expiry(time: u64, key: &[u8]) -> Vec<u8> {
    joined(&[EXPIRIES, &time.to_be_bytes(), key])
}

/// Behind the prefix of such a record: the time and the key.
pub fn of_expiry(rest: &[u8]) -> Option<(u64, &[u8])> {
    let (time, key) = rest.split_first_chunk()?;
    Some((u64::from_be_bytes(*time), key))
}

pub fn garbage(id: u64) -> Vec<u8> {
    joined(&[GARBAGE, &id.to_be_bytes()])
}

/// Behind the prefix of such a record: the number.
pub fn of_garbage(rest: &[u8]) -> Option<u64> {
    rest.try_into().ok().map(u64::from_be_bytes)
}

/// The beginning of all elements' records of a collection.
pub fn elements(id: u64) -> Prefix {
    Prefix::new(joined(&[b"E", &id.to_be_bytes()]))
}

/// The beginning of the records of a collection's members: those of a sorted set lie in both orders.
pub fn members(kind: Kind, id: u64) -> Prefix {
    let order: &[u8] = if kind == Kind::Sorted { &[0] } else { &[] };
    Prefix::new(joined(&[b"E", &id.to_be_bytes(), order]))
}

/// A field of a hash, or a member of a set or sorted set.
pub fn member(kind: Kind, id: u64, seed: u64, member: &[u8]) -> Vec<u8> {
    let order: &[u8] = if kind == Kind::Sorted { &[0] } else { &[] };
    joined(&[b"E", &id.to_be_bytes(), order, &hash(seed, member).to_be_bytes(), member])
}

/// Behind the prefix of such a record: the hash and the member.
pub fn of_member(rest: &[u8]) -> Option<(u64, &[u8])> {
    let (hash, member) = rest.split_first_chunk()?;
    Some((u64::from_be_bytes(*hash), member))
}

/// The beginning of a sorted set's records in the order of scores.
pub fn scores(id: u64) -> Prefix {
    Prefix::new(joined(&[b"E", &id.to_be_bytes(), &[1]]))
}

/// A member of a sorted set in the order of scores.
pub fn scored(id: u64, score: [u8; 8], member: &[u8]) -> Vec<u8> {
    joined(&[b"E", &id.to_be_bytes(), &[1], &score, member])
}

/// An element of a list.
pub fn listed(id: u64, index: u64) -> Vec<u8> {
    joined(&[b"E", &id.to_be_bytes(), &index.to_be_bytes()])
}

/// The beginning of records that lie beside each other, and where they end.
pub struct Prefix {
    bytes: Vec<u8>,
    /// The least bytes that are greater than all that begin so; `None`: there are none.
    behind: Option<Vec<u8>>,
}

impl Prefix {
    pub fn new(bytes: Vec<u8>) -> Self {
        let last = bytes.iter().rposition(|byte| *byte != u8::MAX);
        let behind = last.map(|last| {
            let mut next = bytes[..=last].to_vec();
            next[last] += 1;
            next
        });
        Self { bytes, behind }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bound behind the last record.
    pub fn end(&self) -> Bound<&[u8]> {
        self.behind.as_deref().map_or(Bound::Unbounded, Bound::Excluded)
    }

    /// What follows the prefix in a record's key.
    pub fn rest<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        key.strip_prefix(&self.bytes[..])
    }

    /// The first key with the prefix whose rest is not less than these bytes.
    pub fn at(&self, rest: &[u8]) -> Vec<u8> {
        joined(&[&self.bytes, rest])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::ops::RangeBounds as _;

    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let head = Head { id: 7, begin: MIDDLE - 1, end: MIDDLE + 2 };
        assert_eq!((Head::of(&head.bytes()), head.len()), (Some(head), 3));
        assert_eq!(Head::of(&head.bytes()[1..]), None);
        let bytes = head.bytes();
        let record = Record { kind: Kind::List, expiry: 99, body: &bytes };
        assert_eq!(Record::of(&record.bytes()), Some(record));
        assert_eq!(Record::of(&[9; 20]), None);
        assert_eq!(of_expiry(&expiry(5, b"k")[1..]), Some((5, &b"k"[..])));
        assert_eq!(of_garbage(&garbage(5)[1..]), Some(5));
        let prefix = members(Kind::Sorted, 3);
        let record = member(Kind::Sorted, 3, 1, b"m");
        assert_eq!(
            of_member(record.strip_prefix(prefix.bytes()).unwrap()),
            Some((hash(1, b"m"), &b"m"[..]))
        );
    }

    proptest! {
        #[test]
        fn what_is_behind_a_prefix_is_so(
            prefix in prop::collection::vec(prop::sample::select(vec![0, 7, 254, 255]), 1..5),
            other in prop::collection::vec(prop::sample::select(vec![0, 7, 254, 255]), 0..7),
        ) {
            let prefix = Prefix::new(prefix);
            let is_in = (Bound::Included(prefix.bytes()), prefix.end()).contains(&&other[..]);
            prop_assert_eq!(is_in, prefix.rest(&other).is_some());
        }
    }
}
