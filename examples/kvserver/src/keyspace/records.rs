//! What commands do with the records of a key: look, put, delete.

use std::ops::Bound;

use super::Keyspace;
use super::encoding::{self, Head, Kind, NEVER, Prefix, Record};
use crate::commands::{Context, Fail, WRONG_TYPE};

/// Elements that a command deletes with their collection. Those of larger ones are left to the caretaker.
const MOST_AT_ONCE: u64 = 64;

/// The record of a key, unless it has expired.
pub fn find<'k, K: Keyspace>(data: &'k K, now: u64, key: &[u8]) -> Option<Record<'k>> {
    let record = Record::of(data.get(&encoding::key(data.seed(), key))?)?;
    (!has_expired(record.expiry, now)).then_some(record)
}

pub fn has_expired(expiry: u64, now: u64) -> bool {
    expiry != NEVER && expiry <= now
}

/// The bytes of a string.
///
/// # Errors
/// The key is of another type.
pub fn text<'k, K: Keyspace>(data: &'k K, now: u64, key: &[u8]) -> Result<Option<&'k [u8]>, Fail> {
    match find(data, now, key) {
        None => Ok(None),
        Some(Record { kind: Kind::Text, body, .. }) => Ok(Some(body)),
        Some(_) => Err(WRONG_TYPE),
    }
}

/// The head of a collection.
///
/// # Errors
/// The key is of another type.
pub fn head<K: Keyspace>(data: &K, now: u64, key: &[u8], kind: Kind) -> Result<Option<Head>, Fail> {
    match find(data, now, key) {
        None => Ok(None),
        Some(record) if record.kind == kind => Ok(Head::of(record.body)),
        Some(_) => Err(WRONG_TYPE),
    }
}

/// What a command knows of a key that it is about to change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    pub kind: Kind,
    pub expiry: u64,
    /// A collection's head.
    head: Option<Head>,
}

impl Known {
    fn of(record: Record<'_>) -> Self {
        let is_collection = record.kind != Kind::Text;
        let head = if is_collection { Head::of(record.body) } else { None };
        Self { kind: record.kind, expiry: record.expiry, head }
    }
}

/// What a key is, for a command that changes it. An expired one is deleted.
///
/// # Errors
/// There is no room.
pub fn known<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    key: &[u8],
) -> Result<Option<Known>, Fail> {
    let record = data.get(&encoding::key(data.seed(), key)).and_then(Record::of);
    let Some(known) = record.map(Known::of) else { return Ok(None) };
    if !has_expired(known.expiry, context.now) {
        return Ok(Some(known));
    }
    // It was not there for clients, those that watch it among them.
    remove_known(context, data, key, known)?;
    Ok(None)
}

/// Sets the record of a key whose old one is `before`, with its time of expiry. The elements of an old collection are deleted.
///
/// # Errors
/// There is no room. Nothing has changed.
pub fn put<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    key: &[u8],
    before: Option<Known>,
    record: Record<'_>,
) -> Result<(), Fail> {
    let expiry = before.map_or(NEVER, |before| before.expiry);
    let new_expiry = Some(record.expiry).filter(|new| *new != expiry && *new != NEVER);
    let new_expiry = new_expiry.map(|new| encoding::expiry(new, key));
    if let Some(new_expiry) = &new_expiry {
        data.insert(new_expiry, b"")?;
    }
    let place = encoding::key(data.seed(), key);
    if let Err(why) = data.insert(&place, &record.bytes()) {
        if let Some(new_expiry) = &new_expiry {
            data.remove(new_expiry)?;
        }
        return Err(why.into());
    }
    // From here on only room is made.
    if expiry != record.expiry && expiry != NEVER {
        data.remove(&encoding::expiry(expiry, key))?;
    }
    match before {
        None => context.keys += 1,
        Some(Known { kind, head: Some(head), .. }) => {
            let goes_on =
                kind == record.kind && Head::of(record.body).is_some_and(|new| new.id == head.id);
            if !goes_on {
                delete_elements(data, kind, head)?;
            }
        }
        Some(_) => {}
    }
    context.touch(key);
    Ok(())
}

/// Sets a string that does not expire where there is none, or one of that kind: with one search. False: there is another record, and nothing has changed.
///
/// # Errors
/// There is no room.
pub fn put_plain_text<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    key: &[u8],
    text: &[u8],
) -> Result<bool, Fail> {
    let record = Record { kind: Kind::Text, expiry: NEVER, body: text };
    let is_plain = |old: Record<'_>| old.kind == Kind::Text && old.expiry == NEVER;
    let allows = |old: Option<&[u8]>| old.is_none_or(|old| Record::of(old).is_some_and(is_plain));
    let place = encoding::key(data.seed(), key);
    let Some(is_new) = data.insert_if(&place, &record.bytes(), allows)? else { return Ok(false) };
    context.keys += i64::from(is_new);
    context.touch(key);
    Ok(true)
}

/// Sets a string. `expiry`: `None` leaves it as it is.
///
/// # Errors
/// There is no room.
pub fn put_text<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    key: &[u8],
    before: Option<Known>,
    text: &[u8],
    expiry: Option<u64>,
) -> Result<(), Fail> {
    let expiry = expiry.unwrap_or(before.map_or(NEVER, |before| before.expiry));
    put(context, data, key, before, Record { kind: Kind::Text, expiry, body: text })
}

/// A collection that a command changes, and that is there or will be.
pub struct Collection {
    kind: Kind,
    expiry: u64,
    /// `None`: it is new, and has no record yet.
    before: Option<Head>,
    pub head: Head,
}

/// The collection of a key, for a command that adds to it.
///
/// # Errors
/// The key is of another type; there is no room.
pub fn collection<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    key: &[u8],
    kind: Kind,
) -> Result<Collection, Fail> {
    if let Some(collection) = present(context, data, key, kind)? {
        return Ok(collection);
    }
    let id =
        data.get(encoding::NUMBER).and_then(|id| id.try_into().ok()).map_or(0, u64::from_be_bytes);
    data.insert(encoding::NUMBER, &(id + 1).to_be_bytes())?;
    let begin = if kind == Kind::List { encoding::MIDDLE } else { 0 };
    Ok(Collection { kind, expiry: NEVER, before: None, head: Head { id, begin, end: begin } })
}

/// The collection of a key, for a command that changes one that is there.
///
/// # Errors
/// The key is of another type; there is no room.
pub fn present<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    key: &[u8],
    kind: Kind,
) -> Result<Option<Collection>, Fail> {
    match known(context, data, key)? {
        None => Ok(None),
        Some(Known { kind: other, expiry, head: Some(head) }) if other == kind => {
            Ok(Some(Collection { kind, expiry, before: Some(head), head }))
        }
        Some(_) => Err(WRONG_TYPE),
    }
}

impl Collection {
    /// Writes the head, if it has changed. An empty collection is deleted.
    ///
    /// # Errors
    /// There is no room.
    pub fn put<K: Keyspace>(
        &self,
        context: &mut Context<'_>,
        data: &mut K,
        key: &[u8],
    ) -> Result<(), Fail> {
        let before = self.before.map(|head| Known {
            kind: self.kind,
            expiry: self.expiry,
            head: Some(head),
        });
        if self.head.len() == 0 {
            if let Some(before) = before {
                // Its elements are gone.
                let empty = Head { end: self.head.begin, ..self.head };
                delete_known(context, data, key, Known { head: Some(empty), ..before })?;
            }
            return Ok(());
        }
        context.touch(key);
        if self.before == Some(self.head) {
            return Ok(());
        }
        let body = self.head.bytes();
        put(
            context,
            data,
            key,
            before,
            Record { kind: self.kind, expiry: self.expiry, body: &body },
        )
    }
}

/// Deletes a key. False: it is not there.
///
/// # Errors
/// There is no room.
pub fn delete<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    key: &[u8],
) -> Result<bool, Fail> {
    let Some(known) = known(context, data, key)? else { return Ok(false) };
    delete_known(context, data, key, known)?;
    Ok(true)
}

/// Deletes a key that is there.
///
/// # Errors
/// There is no room.
pub fn delete_known<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    key: &[u8],
    known: Known,
) -> Result<(), Fail> {
    remove_known(context, data, key, known)?;
    context.touch(key);
    Ok(())
}

fn remove_known<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    key: &[u8],
    known: Known,
) -> Result<(), Fail> {
    if let Some(head) = known.head {
        delete_elements(data, known.kind, head)?;
    }
    data.remove(&encoding::key(data.seed(), key))?;
    if known.expiry != NEVER {
        data.remove(&encoding::expiry(known.expiry, key))?;
    }
    context.keys -= 1;
    Ok(())
}

fn delete_elements<K: Keyspace>(data: &mut K, kind: Kind, head: Head) -> Result<(), Fail> {
    // Where there is no room for the note, the elements go at once.
    if head.len() > MOST_AT_ONCE && data.insert(&encoding::garbage(head.id), b"").is_ok() {
        return Ok(());
    }
    if head.len() > 0 {
        let records = head.len() * if kind == Kind::Sorted { 2 } else { 1 };
        remove_some(data, &encoding::elements(head.id), records as usize)?;
    }
    Ok(())
}

/// Removes records that begin so; returns how many, which is `most` if there may be more.
///
/// # Errors
/// There is no room.
pub fn remove_some<K: Keyspace>(data: &mut K, prefix: &Prefix, most: usize) -> Result<usize, Fail> {
    let range = data.range(Bound::Included(prefix.bytes()), prefix.end());
    let records: Vec<Vec<u8>> = range.take(most).map(|(key, _)| key.to_vec()).collect();
    for record in &records {
        data.remove(record)?;
    }
    Ok(records.len())
}

/// Has a key that is there go by another name, whose old record is `target`.
///
/// # Errors
/// There is no room.
pub fn rename<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    (from, to): (&[u8], &[u8]),
    known: Known,
    target: Option<Known>,
) -> Result<(), Fail> {
    let old = encoding::key(data.seed(), from);
    let bytes = data.get(&old).map(<[u8]>::to_vec).unwrap_or_default();
    let Some(record) = Record::of(&bytes) else { return Ok(()) };
    data.remove(&old)?;
    if known.expiry != NEVER {
        data.remove(&encoding::expiry(known.expiry, from))?;
    }
    context.keys -= 1;
    context.touch(from);
    put(context, data, to, target, record)
}

/// Changes the time of expiry of a key that is there.
///
/// # Errors
/// There is no room.
pub fn expire<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    key: &[u8],
    known: Known,
    expiry: u64,
) -> Result<(), Fail> {
    let bytes = data.get(&encoding::key(data.seed(), key)).map(<[u8]>::to_vec).unwrap_or_default();
    let Some(record) = Record::of(&bytes) else { return Ok(()) };
    put(context, data, key, Some(known), Record { expiry, ..record })
}

/// Removes expired keys and elements of deleted collections, `most` records at most. True: there may be more.
///
/// # Errors
/// There is no room.
pub fn clean<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    most: usize,
) -> Result<bool, Fail> {
    let expired: Vec<(u64, Vec<u8>)> = data
        .prefixed(&Prefix::new(encoding::EXPIRIES.to_vec()))
        .filter_map(|(rest, _)| encoding::of_expiry(rest))
        .take_while(|(time, _)| *time <= context.now)
        .take(most)
        .map(|(time, key)| (time, key.to_vec()))
        .collect();
    for (time, key) in &expired {
        known(context, data, key)?;
        data.remove(&encoding::expiry(*time, key))?;
    }
    let garbage = Prefix::new(encoding::GARBAGE.to_vec());
    let first = data.prefixed(&garbage).next().and_then(|(rest, _)| encoding::of_garbage(rest));
    let Some(id) = first else { return Ok(expired.len() == most) };
    if remove_some(data, &encoding::elements(id), most)? < most {
        data.remove(&encoding::garbage(id))?;
    }
    Ok(true)
}

/// Whether [`clean`] would find anything.
pub fn needs_cleaning<K: Keyspace>(data: &K, now: u64) -> bool {
    let expiries = Prefix::new(encoding::EXPIRIES.to_vec());
    let first = data.prefixed(&expiries).next().and_then(|(rest, _)| encoding::of_expiry(rest));
    first.is_some_and(|(time, _)| time <= now)
        || data.prefixed(&Prefix::new(encoding::GARBAGE.to_vec())).next().is_some()
}

/// The keys that are there, expired ones too.
pub fn count_keys<K: Keyspace>(data: &K) -> i64 {
    data.prefixed(&Prefix::new(encoding::KEYS.to_vec())).count() as i64
}
