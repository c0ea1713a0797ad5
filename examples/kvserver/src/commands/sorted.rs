//! Sorted sets: members and their scores. Each member has a record by its name and one in the order of scores.

use std::ops::Bound;

use super::{Args, Context, Done, Fail, NOT_POSITIVE, SYNTAX, float, integer, is, said};
use crate::keyspace::Keyspace;
use crate::keyspace::encoding::{self, Head, Kind};
use crate::keyspace::records::{self, Collection};
use crate::numbers;

pub fn head<K: Keyspace>(
    context: &Context<'_>,
    data: &K,
    key: &[u8],
) -> Result<Option<Head>, Fail> {
    records::head(data, context.now, key, Kind::Sorted)
}

fn place<K: Keyspace>(data: &K, head: &Head, member: &[u8]) -> Vec<u8> {
    encoding::member(Kind::Sorted, head.id, data.seed(), member)
}

/// The ordered bytes of a member's score.
pub fn ordered_score<K: Keyspace>(data: &K, head: &Head, member: &[u8]) -> Option<[u8; 8]> {
    data.get(&place(data, head, member))?.try_into().ok()
}

/// The member and the ordered score of a record in the order of scores, behind its prefix.
pub fn of_scored(rest: &[u8]) -> Option<([u8; 8], &[u8])> {
    rest.split_first_chunk().map(|(score, member)| (*score, member))
}

/// Scores and members.
type Pairs<'a> = &'a [[&'a [u8]; 2]];

/// What `ZADD` was asked to do.
#[derive(Default)]
struct Wish {
    if_new: bool,
    if_present: bool,
    if_greater: bool,
    if_less: bool,
    counts_changes: bool,
    increments: bool,
}

impl Wish {
    /// The wish, and the pairs of scores and members.
    fn of(mut args: Args<'_>) -> Result<(Self, Pairs<'_>), Fail> {
        let mut wish = Self::default();
        while let [word, rest @ ..] = args {
            let place = match word {
                word if is(word, "NX") => &mut wish.if_new,
                word if is(word, "XX") => &mut wish.if_present,
                word if is(word, "GT") => &mut wish.if_greater,
                word if is(word, "LT") => &mut wish.if_less,
                word if is(word, "CH") => &mut wish.counts_changes,
                word if is(word, "INCR") => &mut wish.increments,
                _ => break,
            };
            *place = true;
            args = rest;
        }
        let (pairs, rest) = args.as_chunks::<2>();
        if pairs.is_empty() || !rest.is_empty() {
            return Err(SYNTAX);
        }
        if wish.if_new && wish.if_present {
            return Err(said("ERR XX and NX options at the same time are not compatible"));
        }
        if wish.if_greater && wish.if_less || wish.if_new && (wish.if_greater || wish.if_less) {
            return Err(said("ERR GT, LT, and/or NX options at the same time are not compatible"));
        }
        if wish.increments && pairs.len() > 1 {
            return Err(said("ERR INCR option supports a single increment-element pair"));
        }
        Ok((wish, pairs))
    }
}

/// What became of a member.
enum Added {
    New,
    Changed,
    Same,
    Refused,
}

fn add_one<K: Keyspace>(
    data: &mut K,
    set: &mut Collection,
    wish: &Wish,
    (score, member): (f64, &[u8]),
) -> Result<(Added, f64), Fail> {
    let place = place(data, &set.head, member);
    let before: Option<[u8; 8]> = data.get(&place).and_then(|score| score.try_into().ok());
    let Some(before) = before else {
        if wish.if_present {
            return Ok((Added::Refused, score));
        }
        let score = numbers::ordered(score);
        data.insert(&place, &score)?;
        data.insert(&encoding::scored(set.head.id, score, member), b"")?;
        set.head.end += 1;
        return Ok((Added::New, numbers::of_ordered(score)));
    };
    let old = numbers::of_ordered(before);
    let score = if wish.increments { old + score } else { score };
    if score.is_nan() {
        return Err(said("ERR resulting score is not a number (NaN)"));
    }
    if wish.if_new || wish.if_greater && score <= old || wish.if_less && score >= old {
        return Ok((Added::Refused, old));
    }
    let new = numbers::ordered(score);
    if new == before {
        return Ok((Added::Same, score));
    }
    data.insert(&place, &new)?;
    data.remove(&encoding::scored(set.head.id, before, member))?;
    data.insert(&encoding::scored(set.head.id, new, member), b"")?;
    Ok((Added::Changed, score))
}

fn add_as<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    key: &[u8],
    wish: &Wish,
    pairs: Pairs<'_>,
) -> Done {
    let scores: Vec<f64> = pairs.iter().map(|[score, _]| float(score)).collect::<Result<_, _>>()?;
    let set = if wish.if_present {
        records::present(context, data, key, Kind::Sorted)?
    } else {
        Some(records::collection(context, data, key, Kind::Sorted)?)
    };
    let (mut new, mut changed, mut last) = (0, 0, None);
    if let Some(mut set) = set {
        for (score, [_, member]) in scores.into_iter().zip(pairs) {
            let (added, score) = add_one(data, &mut set, wish, (score, member))?;
            last = (!matches!(added, Added::Refused)).then_some(score);
            new += i64::from(matches!(added, Added::New));
            changed += i64::from(matches!(added, Added::Changed));
        }
        if new + changed > 0 {
            set.put(context, data, key)?;
        }
    }
    match (wish.increments, last) {
        (true, Some(score)) => context.out.float(score),
        (true, None) => context.out.null(),
        (false, _) => context.out.integer(if wish.counts_changes { new + changed } else { new }),
    }
    Ok(())
}

pub fn add<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let (wish, pairs) = Wish::of(&args[2..])?;
    add_as(context, data, args[1], &wish, pairs)
}

pub fn increment_by<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let wish = Wish { increments: true, ..Wish::default() };
    add_as(context, data, args[1], &wish, &[[args[2], args[3]]])
}

/// Removes a member whose ordered score is known.
pub fn remove_scored<K: Keyspace>(
    data: &mut K,
    set: &mut Collection,
    score: [u8; 8],
    member: &[u8],
) -> Done {
    let place = place(data, &set.head, member);
    data.remove(&place)?;
    data.remove(&encoding::scored(set.head.id, score, member))?;
    set.head.end -= 1;
    Ok(())
}

pub fn remove<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let mut removed = 0;
    if let Some(mut set) = records::present(context, data, args[1], Kind::Sorted)? {
        for member in &args[2..] {
            if let Some(score) = ordered_score(data, &set.head, member) {
                remove_scored(data, &mut set, score, member)?;
                removed += 1;
            }
        }
        if removed > 0 {
            set.put(context, data, args[1])?;
        }
    }
    context.out.integer(removed);
    Ok(())
}

pub fn length<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let head = head(context, data, args[1])?;
    context.out.integer(head.map_or(0, |head| head.len() as i64));
    Ok(())
}

fn write_score<K: Keyspace>(
    context: &mut Context<'_>,
    data: &K,
    head: Option<Head>,
    member: &[u8],
) {
    match head.and_then(|head| ordered_score(data, &head, member)) {
        Some(score) => context.out.float(numbers::of_ordered(score)),
        None => context.out.null(),
    }
}

pub fn score<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let head = head(context, data, args[1])?;
    write_score(context, data, head, args[2]);
    Ok(())
}

pub fn scores<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let head = head(context, data, args[1])?;
    context.out.array(args.len() - 2);
    for member in &args[2..] {
        write_score(context, data, head, member);
    }
    Ok(())
}

fn pop<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    args: Args<'_>,
    is_greatest: bool,
) -> Done {
    let count = match args {
        [_, _] => 1,
        [_, _, count] => {
            let count = integer(count).ok().and_then(|count| usize::try_from(count).ok());
            count.ok_or(NOT_POSITIVE)?
        }
        _ => return Err(SYNTAX),
    };
    let Some(mut set) = records::present(context, data, args[1], Kind::Sorted)? else {
        context.out.array(0);
        return Ok(());
    };
    let prefix = encoding::scores(set.head.id);
    let mut range = data.range(Bound::Included(prefix.bytes()), prefix.end());
    let popped: Vec<Vec<u8>> =
        std::iter::from_fn(|| if is_greatest { range.next_back() } else { range.next() })
            .take(count)
            .filter_map(|(key, _)| Some(prefix.rest(key)?.to_vec()))
            .collect();
    drop(range);
    context.out.array(popped.len() * 2);
    for (score, member) in popped.iter().filter_map(|rest| of_scored(rest)) {
        remove_scored(data, &mut set, score, member)?;
        context.out.bulk(member);
        context.out.float(numbers::of_ordered(score));
    }
    if !popped.is_empty() {
        set.put(context, data, args[1])?;
    }
    Ok(())
}

pub fn pop_least<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    pop(context, data, args, false)
}

pub fn pop_greatest<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    pop(context, data, args, true)
}
