//! What sets have in common, together, and apart.

use std::collections::HashSet;

use super::{Args, Context, Done, Fail, SYNTAX, integer, is, said, sets};
use crate::keyspace::encoding::{self, Head, Kind};
use crate::keyspace::{Keyspace, records};

/// How sets become one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Difference,
    Intersection,
    Union,
}

/// The sets of these keys, of which some are not there.
fn heads<K: Keyspace>(
    context: &Context<'_>,
    data: &K,
    keys: Args<'_>,
) -> Result<Vec<Option<Head>>, Fail> {
    keys.iter().map(|key| sets::head(context, data, key)).collect()
}

/// Calls `see` for each member of what sets become, until it returns false.
fn each<K: Keyspace>(
    data: &K,
    way: Way,
    heads: &[Option<Head>],
    mut see: impl FnMut(&[u8]) -> bool,
) {
    match way {
        Way::Union => {
            let mut seen: HashSet<Vec<u8>> = HashSet::new();
            for head in heads.iter().flatten() {
                if !walk(data, head, |member| !seen.insert(member.to_vec()) || see(member)) {
                    return;
                }
            }
        }
        Way::Intersection => {
            let all: Option<Vec<Head>> = heads.iter().copied().collect();
            let all = all.unwrap_or_default();
            let Some(least) = all.iter().min_by_key(|head| head.len()) else { return };
            let is_in = |member: &[u8]| {
                all.iter().all(|head| head == least || sets::has(data, head, member))
            };
            walk(data, least, |member| !is_in(member) || see(member));
        }
        Way::Difference => {
            let Some((Some(first), others)) = heads.split_first() else { return };
            let is_out =
                |member: &[u8]| others.iter().flatten().any(|head| sets::has(data, head, member));
            walk(data, first, |member| is_out(member) || see(member));
        }
    }
}

/// Calls `see` for the members of a set, until it returns false; returns what it has returned last.
fn walk<K: Keyspace>(data: &K, head: &Head, mut see: impl FnMut(&[u8]) -> bool) -> bool {
    let prefix = encoding::members(Kind::Set, head.id);
    let members = data.prefixed(&prefix).filter_map(|(rest, _)| encoding::of_member(rest));
    members.map(|(_, member)| member).all(&mut see)
}

fn write<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>, way: Way) -> Done {
    let heads = heads(context, data, &args[1..])?;
    context.out.counted(|out| {
        let mut len = 0;
        each(data, way, &heads, |member| {
            out.bulk(member);
            len += 1;
            !out.is_cut()
        });
        len
    });
    Ok(())
}

pub fn intersection<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    write(context, data, args, Way::Intersection)
}

pub fn difference<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    write(context, data, args, Way::Difference)
}

pub fn union<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    write(context, data, args, Way::Union)
}

/// Has a key be the set that others become; whatever it was goes.
fn store<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>, way: Way) -> Done {
    let heads = heads(context, data, &args[2..])?;
    let mut members = Vec::new();
    each(data, way, &heads, |member| {
        members.push(member.to_vec());
        true
    });
    records::delete(context, data, args[1])?;
    if !members.is_empty() {
        let members: Vec<&[u8]> = members.iter().map(Vec::as_slice).collect();
        sets::put(context, data, args[1], &members)?;
    }
    context.out.count(members.len());
    Ok(())
}

pub fn store_intersection<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    args: Args<'_>,
) -> Done {
    store(context, data, args, Way::Intersection)
}

pub fn store_difference<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    args: Args<'_>,
) -> Done {
    store(context, data, args, Way::Difference)
}

pub fn store_union<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    store(context, data, args, Way::Union)
}

/// How many members sets have in common, counted up to a limit.
pub fn count_common<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let keys = integer(args[1]).ok().and_then(|keys| usize::try_from(keys).ok());
    let keys = keys.filter(|keys| *keys > 0).ok_or(said("ERR numkeys should be greater than 0"))?;
    let few = said("ERR Number of keys can't be greater than number of args");
    let (keys, mut options) = args[2..].split_at_checked(keys).ok_or(few)?;
    let mut most = 0;
    while let [word, rest @ ..] = options {
        let [limit, rest @ ..] = rest else { return Err(SYNTAX) };
        if !is(word, "LIMIT") {
            return Err(SYNTAX);
        }
        let limit = integer(limit).ok().and_then(|limit| usize::try_from(limit).ok());
        most = limit.ok_or(said("ERR LIMIT can't be negative"))?;
        options = rest;
    }
    let heads = heads(context, data, keys)?;
    let mut found = 0;
    each(data, Way::Intersection, &heads, |_| {
        found += 1;
        found != most
    });
    context.out.count(found);
    Ok(())
}
