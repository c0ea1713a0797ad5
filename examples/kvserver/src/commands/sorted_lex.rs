//! Parts of sorted sets whose members have one score: by the bytes of the members. Those of another score than the first are left out.

use std::ops::Bound;

use super::{Args, Context, Done, Fail, SYNTAX, integer, is, said, sorted, sorted_ranges};
use crate::keyspace::Keyspace;
use crate::keyspace::encoding::{self, Head};

/// An end of a range of members.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End<'a> {
    First,
    Last,
    In(&'a [u8]),
    Out(&'a [u8]),
}

impl<'a> End<'a> {
    fn of(text: &'a [u8]) -> Result<Self, Fail> {
        match text {
            b"-" => Ok(Self::First),
            b"+" => Ok(Self::Last),
            [b'[', member @ ..] => Ok(Self::In(member)),
            [b'(', member @ ..] => Ok(Self::Out(member)),
            _ => Err(said("ERR min or max not valid string range item")),
        }
    }

    /// The bound of the members that follow such a lower end, or come before such an upper one. `None`: there are none.
    fn bound(self, is_low: bool) -> Option<Bound<&'a [u8]>> {
        match self {
            Self::In(member) => Some(Bound::Included(member)),
            Self::Out(member) => Some(Bound::Excluded(member)),
            Self::First if is_low => Some(Bound::Unbounded),
            Self::Last if !is_low => Some(Bound::Unbounded),
            Self::First | Self::Last => None,
        }
    }
}

/// Calls `see` with the scores and members between two ends, in order or backwards.
fn walk<K: Keyspace, R: Default>(
    data: &K,
    head: Option<Head>,
    (min, max): (End<'_>, End<'_>),
    is_reverse: bool,
    see: impl FnOnce(&mut dyn Iterator<Item = ([u8; 8], &[u8])>) -> R,
) -> R {
    let (Some(head), Some(low), Some(high)) = (head, min.bound(true), max.bound(false)) else {
        return R::default();
    };
    let is_none = match (low, high) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (
            Bound::Included(low) | Bound::Excluded(low),
            Bound::Included(high) | Bound::Excluded(high),
        ) => low >= high,
    };
    let prefix = encoding::scores(head.id);
    let first = data.prefixed(&prefix).next().and_then(|(rest, _)| sorted::of_scored(rest));
    let Some((score, _)) = first.filter(|_| !is_none) else { return R::default() };
    let one = encoding::Prefix::new(prefix.at(&score));
    let [from, to] = [low, high].map(|end| end.map(|member| one.at(member)));
    let from = from.as_ref().map(Vec::as_slice);
    let to = match &to {
        Bound::Unbounded => one.end(),
        to => to.as_ref().map(Vec::as_slice),
    };
    let from = if from == Bound::Unbounded { Bound::Included(one.bytes()) } else { from };
    let mut range = data.range(from, to).filter_map(|(key, _)| Some((score, one.rest(key)?)));
    if is_reverse { see(&mut range.rev()) } else { see(&mut range) }
}

/// Writes the members between two ends, of which the first is the greater one where the order is reversed.
pub fn write<K: Keyspace>(
    context: &mut Context<'_>,
    data: &K,
    key: &[u8],
    (one, other): (&[u8], &[u8]),
    (is_reverse, limit): (bool, Option<(i64, i64)>),
) -> Done {
    let ends = (End::of(one)?, End::of(other)?);
    let ends = if is_reverse { (ends.1, ends.0) } else { ends };
    let head = sorted::head(context, data, key)?;
    let (from, count) = limit.unwrap_or((0, -1));
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let (from, head) = usize::try_from(from).map_or((0, None), |from| (from, head));
    let mut is_any = false;
    walk(data, head, ends, is_reverse, |members| {
        sorted_ranges::write(context, false, members.skip(from).take(count));
        is_any = true;
    });
    if !is_any {
        context.out.array(0);
    }
    Ok(())
}

fn range_of<K: Keyspace>(
    context: &mut Context<'_>,
    data: &K,
    args: Args<'_>,
    is_reverse: bool,
) -> Done {
    let mut limit = None;
    let mut rest = &args[4..];
    while let [word, others @ ..] = rest {
        let [from, count, others @ ..] = others else { return Err(SYNTAX) };
        if !is(word, "LIMIT") {
            return Err(SYNTAX);
        }
        limit = Some((integer(from)?, integer(count)?));
        rest = others;
    }
    write(context, data, args[1], (args[2], args[3]), (is_reverse, limit))
}

pub fn range<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    range_of(context, data, args, false)
}

pub fn reverse<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    range_of(context, data, args, true)
}

pub fn count<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let ends = (End::of(args[2])?, End::of(args[3])?);
    let head = sorted::head(context, data, args[1])?;
    let count = walk(data, head, ends, false, |members| members.count());
    context.out.count(count);
    Ok(())
}

pub fn remove<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let ends = (End::of(args[2])?, End::of(args[3])?);
    let head = sorted::head(context, data, args[1])?;
    let members: Vec<([u8; 8], Vec<u8>)> = walk(data, head, ends, false, |members| {
        members.map(|(score, member)| (score, member.to_vec())).collect()
    });
    sorted_ranges::remove(context, data, args[1], &members)
}
