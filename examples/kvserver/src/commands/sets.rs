//! Sets.

use std::collections::HashSet;
use std::ops::Bound;

use super::{Args, Context, Done, Fail, NOT_POSITIVE, OUT_OF_RANGE, SYNTAX, integer};
use crate::keyspace::Keyspace;
use crate::keyspace::encoding::{self, Head, Kind};
use crate::keyspace::records;

/// Of a set of so few members a random one is any of them with the same probability. In a larger one it is that behind a random hash.
const SMALL: u64 = 128;
/// The most members of a reply that may have members more than once.
const MOST_REPEATED: u64 = 1 << 20;

fn place<K: Keyspace>(data: &K, head: &Head, member: &[u8]) -> Vec<u8> {
    encoding::member(Kind::Set, head.id, data.seed(), member)
}

pub fn head<K: Keyspace>(
    context: &Context<'_>,
    data: &K,
    key: &[u8],
) -> Result<Option<Head>, Fail> {
    records::head(data, context.now, key, Kind::Set)
}

/// Whether a member is in a set.
pub fn has<K: Keyspace>(data: &K, head: &Head, member: &[u8]) -> bool {
    data.get(&place(data, head, member)).is_some()
}

/// Adds members to the set of a key; returns how many are new.
pub fn put<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    key: &[u8],
    members: &[&[u8]],
) -> Result<u64, Fail> {
    let mut set = records::collection(context, data, key, Kind::Set)?;
    let mut fresh = 0;
    for member in members {
        let place = place(data, &set.head, member);
        fresh += u64::from(data.get(&place).is_none() && data.insert(&place, b"")?);
    }
    if fresh > 0 {
        set.head.end += fresh;
        set.put(context, data, key)?;
    }
    Ok(fresh)
}

pub fn add<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let fresh = put(context, data, args[1], &args[2..])?;
    context.out.integer(fresh as i64);
    Ok(())
}

pub fn move_member<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let Some(mut from) = records::present(context, data, args[1], Kind::Set)? else {
        context.out.integer(0);
        return Ok(());
    };
    head(context, data, args[2])?;
    let is_there = has(data, &from.head, args[3]);
    if is_there && args[1] != args[2] {
        let place = place(data, &from.head, args[3]);
        data.remove(&place)?;
        from.head.end -= 1;
        from.put(context, data, args[1])?;
        put(context, data, args[2], &args[3..])?;
    }
    context.out.integer(is_there.into());
    Ok(())
}

pub fn remove<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let mut removed = 0;
    if let Some(mut set) = records::present(context, data, args[1], Kind::Set)? {
        for member in &args[2..] {
            let place = place(data, &set.head, member);
            removed += u64::from(data.remove(&place)?);
        }
        if removed > 0 {
            set.head.end -= removed;
            set.put(context, data, args[1])?;
        }
    }
    context.out.integer(removed as i64);
    Ok(())
}

pub fn length<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let head = head(context, data, args[1])?;
    context.out.integer(head.map_or(0, |head| head.len() as i64));
    Ok(())
}

pub fn contains<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let head = head(context, data, args[1])?;
    context.out.integer(head.is_some_and(|head| has(data, &head, args[2])).into());
    Ok(())
}

pub fn contains_many<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let head = head(context, data, args[1])?;
    context.out.array(args.len() - 2);
    for member in &args[2..] {
        context.out.integer(head.is_some_and(|head| has(data, &head, member)).into());
    }
    Ok(())
}

pub fn members<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let head = head(context, data, args[1])?;
    context.out.counted(|out| {
        let Some(head) = head else { return 0 };
        let prefix = encoding::members(Kind::Set, head.id);
        data.prefixed(&prefix)
            .filter_map(|(rest, _)| encoding::of_member(rest))
            .inspect(|(_, member)| out.bulk(member))
            .count()
    });
    Ok(())
}

/// A member that is drawn at random.
fn draw<K: Keyspace>(context: &mut Context<'_>, data: &K, head: &Head) -> Option<Vec<u8>> {
    let prefix = encoding::members(Kind::Set, head.id);
    let record = if head.len() <= SMALL {
        let at = context.random.u64(0..head.len().max(1));
        data.prefixed(&prefix).nth(at as usize).map(|(rest, _)| rest)
    } else {
        let from = prefix.at(&context.random.u64(..).to_be_bytes());
        let behind = data.range(Bound::Included(&from), prefix.end()).next();
        let behind = behind.and_then(|(key, _)| Some(prefix.rest(key)?.to_vec()));
        let first = || data.prefixed(&prefix).next().map(|(rest, _)| rest.to_vec());
        return encoding::of_member(&behind.or_else(first)?).map(|(_, member)| member.to_vec());
    };
    encoding::of_member(record?).map(|(_, member)| member.to_vec())
}

pub fn pop<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let count = match args {
        [_, _] => None,
        [_, _, count] => {
            let count = integer(count).ok().and_then(|count| u64::try_from(count).ok());
            Some(count.ok_or(NOT_POSITIVE)?)
        }
        _ => return Err(SYNTAX),
    };
    let Some(mut set) = records::present(context, data, args[1], Kind::Set)? else {
        match count {
            Some(_) => context.out.array(0),
            None => context.out.null(),
        }
        return Ok(());
    };
    let most = count.unwrap_or(1).min(set.head.len());
    let mut popped = Vec::new();
    for _ in 0..most {
        let Some(member) = draw(context, data, &set.head) else { break };
        let place = place(data, &set.head, &member);
        data.remove(&place)?;
        set.head.end -= 1;
        popped.push(member);
    }
    if !popped.is_empty() {
        set.put(context, data, args[1])?;
    }
    if count.is_some() {
        context.out.array(popped.len());
    }
    for member in &popped {
        context.out.bulk(member);
    }
    Ok(())
}

pub fn random<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let count = match args {
        [_, _] => None,
        [_, _, count] => Some(integer(count)?),
        _ => return Err(SYNTAX),
    };
    if count.is_some_and(|count| count < 0 && count.unsigned_abs() > MOST_REPEATED) {
        return Err(OUT_OF_RANGE);
    }
    let Some(head) = head(context, data, args[1])? else {
        match count {
            Some(_) => context.out.array(0),
            None => context.out.null(),
        }
        return Ok(());
    };
    let Some(count) = count else {
        let member = draw(context, data, &head);
        context.out.bulk_or_null(member.as_deref());
        return Ok(());
    };
    if count < 0 {
        // Members may be long: each is written when it is drawn, as far as the reply has room.
        context.out.array(count.unsigned_abs() as usize);
        for _ in 0..count.unsigned_abs() {
            let member = draw(context, data, &head).unwrap_or_default();
            context.out.bulk(&member);
            if context.out.is_cut() {
                break;
            }
        }
        return Ok(());
    }
    let drawn = distinct(context, data, &head, count as u64);
    context.out.array(drawn.len());
    for member in &drawn {
        context.out.bulk(member);
    }
    Ok(())
}

/// Draws for each member that is wanted, at most: of four times as many, three of four draws find another one.
const DRAWS: u64 = 8;

/// Members that are drawn at random, each at most once.
fn distinct<K: Keyspace>(
    context: &mut Context<'_>,
    data: &K,
    head: &Head,
    count: u64,
) -> Vec<Vec<u8>> {
    if head.len() / 4 > count && head.len() > SMALL {
        let (mut seen, mut drawn) = (HashSet::new(), Vec::new());
        // Members whose hashes are equal are not drawn but for the first of them.
        for _ in 0..DRAWS * (count + 8) {
            if drawn.len() as u64 == count {
                return drawn;
            }
            let Some(member) = draw(context, data, head) else { break };
            if seen.insert(member.clone()) {
                drawn.push(member);
            }
        }
    }
    let prefix = encoding::members(Kind::Set, head.id);
    let members = data.prefixed(&prefix).filter_map(|(rest, _)| encoding::of_member(rest));
    let mut all: Vec<Vec<u8>> = members.map(|(_, member)| member.to_vec()).collect();
    context.random.shuffle(&mut all);
    all.truncate(count.min(all.len() as u64) as usize);
    all
}
