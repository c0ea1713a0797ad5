//! Lists: elements by index, from [`encoding::MIDDLE`] to both sides.

use std::ops::{Bound, Range};

use super::{Args, Context, Done, Fail, NO_KEY, NOT_POSITIVE, integer, part, said, wrong_arity};
use crate::keyspace::Keyspace;
use crate::keyspace::encoding::{self, Head, Kind};
use crate::keyspace::records::{self, Collection};

fn push<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    args: Args<'_>,
    is_left: bool,
    makes: bool,
) -> Done {
    let list = if makes {
        Some(records::collection(context, data, args[1], Kind::List)?)
    } else {
        records::present(context, data, args[1], Kind::List)?
    };
    let Some(mut list) = list else {
        context.out.integer(0);
        return Ok(());
    };
    let head = &mut list.head;
    for element in &args[2..] {
        let index = if is_left { head.begin - 1 } else { head.end };
        data.insert(&encoding::listed(head.id, index), element)?;
        if is_left {
            head.begin -= 1;
        } else {
            head.end += 1;
        }
    }
    list.put(context, data, args[1])?;
    context.out.integer(list.head.len() as i64);
    Ok(())
}

pub fn push_left<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    push(context, data, args, true, true)
}

pub fn push_right<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    push(context, data, args, false, true)
}

pub fn push_left_present<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    args: Args<'_>,
) -> Done {
    push(context, data, args, true, false)
}

pub fn push_right_present<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    args: Args<'_>,
) -> Done {
    push(context, data, args, false, false)
}

fn pop<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    args: Args<'_>,
    is_left: bool,
    name: &str,
) -> Done {
    if args.len() > 3 {
        return Err(wrong_arity(name));
    }
    let count = match args.get(2) {
        Some(count) => Some(
            integer(count).ok().and_then(|count| u64::try_from(count).ok()).ok_or(NOT_POSITIVE)?,
        ),
        None => None,
    };
    let Some(mut list) = records::present(context, data, args[1], Kind::List)? else {
        match count {
            Some(_) => context.out.null_array(),
            None => context.out.null(),
        }
        return Ok(());
    };
    let most = count.unwrap_or(1).min(list.head.len());
    if count.is_some() {
        context.out.array(most as usize);
    }
    for _ in 0..most {
        let head = &mut list.head;
        let index = if is_left { head.begin } else { head.end - 1 };
        let place = encoding::listed(head.id, index);
        context.out.bulk(data.get(&place).unwrap_or_default());
        data.remove(&place)?;
        if is_left {
            head.begin += 1;
        } else {
            head.end -= 1;
        }
    }
    if most > 0 {
        list.put(context, data, args[1])?;
    }
    Ok(())
}

pub fn pop_left<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    pop(context, data, args, true, "lpop")
}

pub fn pop_right<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    pop(context, data, args, false, "rpop")
}

fn head<K: Keyspace>(context: &Context<'_>, data: &K, key: &[u8]) -> Result<Option<Head>, Fail> {
    records::head(data, context.now, key, Kind::List)
}

pub fn length<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let head = head(context, data, args[1])?;
    context.out.integer(head.map_or(0, |head| head.len() as i64));
    Ok(())
}

/// The elements of a part of a list, in order.
fn elements<'k, K: Keyspace>(
    data: &'k K,
    ends: &'k [Vec<u8>; 2],
) -> impl Iterator<Item = &'k [u8]> {
    let [from, to] = ends;
    data.range(Bound::Included(from), Bound::Excluded(to)).map(|(_, element)| element)
}

/// The keys between which the elements of a part of a list lie.
fn ends(head: &Head, part: Range<u64>) -> [Vec<u8>; 2] {
    [part.start, part.end].map(|index| encoding::listed(head.id, head.begin + index))
}

pub fn range<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let indices = (integer(args[2])?, integer(args[3])?);
    let Some(head) = head(context, data, args[1])? else {
        context.out.array(0);
        return Ok(());
    };
    let part = part(head.len(), indices);
    context.out.array((part.end - part.start) as usize);
    for element in elements(data, &ends(&head, part)) {
        context.out.bulk(element);
    }
    Ok(())
}

/// The index of an element that is there.
fn at(head: &Head, index: i64) -> Option<u64> {
    let len = head.len() as i64;
    let index = if index < 0 { len.checked_add(index)? } else { index };
    (0..len).contains(&index).then(|| head.begin + index as u64)
}

pub fn index<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let head = head(context, data, args[1])?;
    let Some(head) = head else {
        context.out.null();
        return Ok(());
    };
    let place = at(&head, integer(args[2])?).map(|index| encoding::listed(head.id, index));
    context.out.bulk_or_null(place.and_then(|place| data.get(&place)));
    Ok(())
}

pub fn set<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let list = records::present(context, data, args[1], Kind::List)?.ok_or(NO_KEY)?;
    let index = integer(args[2])?;
    let index = at(&list.head, index).ok_or(said("ERR index out of range"))?;
    data.insert(&encoding::listed(list.head.id, index), args[3])?;
    list.put(context, data, args[1])?;
    context.out.ok();
    Ok(())
}

/// Removes the elements of these indices.
fn remove_indices<K: Keyspace>(data: &mut K, list: &Collection, indices: Range<u64>) -> Done {
    for index in indices {
        data.remove(&encoding::listed(list.head.id, index))?;
    }
    Ok(())
}

pub fn trim<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let indices = (integer(args[2])?, integer(args[3])?);
    if let Some(mut list) = records::present(context, data, args[1], Kind::List)? {
        let part = part(list.head.len(), indices);
        let Head { begin, end, .. } = list.head;
        let kept = if part.is_empty() { end..end } else { begin + part.start..begin + part.end };
        remove_indices(data, &list, begin..kept.start)?;
        remove_indices(data, &list, kept.end..end)?;
        list.head = Head { begin: kept.start, end: kept.end, ..list.head };
        list.put(context, data, args[1])?;
    }
    context.out.ok();
    Ok(())
}

pub fn remove<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let count = integer(args[2])?;
    let Some(mut list) = records::present(context, data, args[1], Kind::List)? else {
        context.out.integer(0);
        return Ok(());
    };
    let most = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let all = ends(&list.head, 0..list.head.len());
    let found: Vec<bool> = elements(data, &all).map(|element| element == args[3]).collect();
    let mut left = most;
    let mut is_out = |found: &bool| {
        let is_out = *found && left > 0;
        left -= u64::from(is_out);
        is_out
    };
    let out: Vec<bool> = if count < 0 {
        let mut out: Vec<bool> = found.iter().rev().map(&mut is_out).collect();
        out.reverse();
        out
    } else {
        found.iter().map(&mut is_out).collect()
    };
    let removed = most - left;
    if removed > 0 {
        let mut next = list.head.begin;
        for (index, is_out) in (list.head.begin..).zip(out) {
            if is_out {
                continue;
            }
            if next != index {
                let element = data.get(&encoding::listed(list.head.id, index)).map(<[u8]>::to_vec);
                data.insert(&encoding::listed(list.head.id, next), &element.unwrap_or_default())?;
            }
            next += 1;
        }
        remove_indices(data, &list, next..list.head.end)?;
        list.head.end = next;
        list.put(context, data, args[1])?;
    }
    context.out.integer(removed as i64);
    Ok(())
}
