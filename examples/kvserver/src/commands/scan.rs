//! `SCAN` and its like. A cursor is the beginning of the next element's hash: what is there from the first call to the last is in a reply.

use std::ops::Bound;

use super::{Args, BAD_CURSOR, Context, Done, Fail, SYNTAX, integer, is};
use crate::glob;
use crate::keyspace::encoding::{self, Kind, Prefix, Record};
use crate::keyspace::{Entry, Keyspace, records};
use crate::numbers;
use crate::reply::{MOST_REPLY, Out};

/// The pattern, number and type of a `SCAN`.
struct Scan<'a> {
    pattern: Option<&'a [u8]>,
    count: usize,
    kind: Option<&'a [u8]>,
}

impl<'a> Scan<'a> {
    fn of(args: Args<'a>) -> Result<Self, Fail> {
        let mut scan = Self { pattern: None, count: 10, kind: None };
        let (options, rest) = args.as_chunks::<2>();
        for [name, value] in options {
            if is(name, "MATCH") {
                scan.pattern = Some(value);
            } else if is(name, "COUNT") {
                let count = integer(value)?;
                scan.count =
                    usize::try_from(count).ok().filter(|count| *count > 0).ok_or(SYNTAX)?;
            } else if is(name, "TYPE") {
                scan.kind = Some(value);
            } else {
                return Err(SYNTAX);
            }
        }
        if rest.is_empty() { Ok(scan) } else { Err(SYNTAX) }
    }
}

/// Bits of a hash that no cursor has. Clients keep cursors as numbers of 53 bits (JavaScript), or as signed ones.
const LEFT_OUT: u32 = 16;

fn cursor(text: &[u8]) -> Result<u64, Fail> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(BAD_CURSOR)
}

/// Writes the next cursor and the elements that `write` accepts: `write` gets a name and a value, and returns the replies that it has written.
fn scan<K: Keyspace>(
    out: &mut Out,
    data: &K,
    prefix: &Prefix,
    (cursor, scan): (u64, &Scan<'_>),
    mut write: impl FnMut(&mut Out, Entry<'_>) -> usize,
) {
    // What no reply had: behind the last element.
    let first = cursor.saturating_mul(1 << LEFT_OUT);
    let from = prefix.at(&first.to_be_bytes());
    let elements = data.range(Bound::Included(&from), prefix.end());
    let mut found = Out::bounded(MOST_REPLY);
    let (mut seen, mut replies, mut last, mut next) = (0, 0, 0, 0);
    for (key, value) in elements {
        let Some((hash, name)) = prefix.rest(key).and_then(encoding::of_member) else { continue };
        // Elements with one cursor are never apart. The next one is behind another, and so not 0.
        let its = hash >> LEFT_OUT;
        if seen >= scan.count && its != last {
            next = its;
            break;
        }
        seen += 1;
        last = its;
        if scan.pattern.is_none_or(|pattern| glob::matches(pattern, name)) {
            replies += write(&mut found, (name, value));
        }
    }
    out.array(2);
    out.bulk(next.to_string().as_bytes());
    out.array(replies);
    out.append(&mut found);
}

pub fn keys<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let (cursor, wish) = (cursor(args[1])?, Scan::of(&args[2..])?);
    let now = context.now;
    let prefix = Prefix::new(encoding::KEYS.to_vec());
    scan(&mut context.out, data, &prefix, (cursor, &wish), |out, (key, record)| {
        let Some(record) = Record::of(record) else { return 0 };
        let is_in = !records::has_expired(record.expiry, now)
            && wish.kind.is_none_or(|kind| is(kind, record.kind.name()));
        if is_in {
            out.bulk(key);
        }
        is_in.into()
    });
    Ok(())
}

fn members<K: Keyspace>(
    context: &mut Context<'_>,
    data: &K,
    args: Args<'_>,
    kind: Kind,
    write: impl FnMut(&mut Out, Entry<'_>) -> usize,
) -> Done {
    let (cursor, wish) = (cursor(args[2])?, Scan::of(&args[3..])?);
    if wish.kind.is_some() {
        return Err(SYNTAX);
    }
    let Some(head) = records::head(data, context.now, args[1], kind)? else {
        context.out.array(2);
        context.out.bulk(b"0");
        context.out.array(0);
        return Ok(());
    };
    let prefix = encoding::members(kind, head.id);
    scan(&mut context.out, data, &prefix, (cursor, &wish), write);
    Ok(())
}

pub fn hash<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    members(context, data, args, Kind::Hash, |out, (field, value)| {
        out.bulk(field);
        out.bulk(value);
        2
    })
}

pub fn set<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    members(context, data, args, Kind::Set, |out, (member, _)| {
        out.bulk(member);
        1
    })
}

pub fn sorted<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    members(context, data, args, Kind::Sorted, |out, (member, score)| {
        out.bulk(member);
        out.float(score.try_into().map_or(0.0, numbers::of_ordered));
        2
    })
}
