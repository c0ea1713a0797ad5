//! What sets have in common, together, and apart.

use std::collections::HashSet;

use super::{Args, Context, Done, Fail, sets};
use crate::keyspace::Keyspace;
use crate::keyspace::encoding::{self, Head, Kind};

/// The sets of a command's arguments, of which some are not there.
fn heads<K: Keyspace>(
    context: &Context<'_>,
    data: &K,
    args: Args<'_>,
) -> Result<Vec<Option<Head>>, Fail> {
    args[1..].iter().map(|key| sets::head(context, data, key)).collect()
}

/// Writes those members of a set that `is_in` accepts.
fn filtered<K: Keyspace>(
    context: &mut Context<'_>,
    data: &K,
    head: Option<Head>,
    mut is_in: impl FnMut(&[u8]) -> bool,
) {
    context.out.counted(|out| {
        let Some(head) = head else { return 0 };
        let prefix = encoding::members(Kind::Set, head.id);
        let members = data.prefixed(&prefix).filter_map(|(rest, _)| encoding::of_member(rest));
        members.filter(|(_, member)| is_in(member)).inspect(|(_, member)| out.bulk(member)).count()
    });
}

pub fn intersection<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let heads = heads(context, data, args)?;
    let all: Option<Vec<Head>> = heads.into_iter().collect();
    let all = all.unwrap_or_default();
    let least = all.iter().min_by_key(|head| head.len()).copied();
    filtered(context, data, least, |member| {
        all.iter().all(|head| Some(*head) == least || sets::has(data, head, member))
    });
    Ok(())
}

pub fn difference<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let heads = heads(context, data, args)?;
    let Some((first, others)) = heads.split_first() else { return Ok(()) };
    filtered(context, data, *first, |member| {
        !others.iter().flatten().any(|head| sets::has(data, head, member))
    });
    Ok(())
}

pub fn union<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let heads = heads(context, data, args)?;
    context.out.counted(|out| {
        let mut seen: HashSet<Vec<u8>> = HashSet::new();
        for head in heads.iter().flatten() {
            let prefix = encoding::members(Kind::Set, head.id);
            let members = data.prefixed(&prefix).filter_map(|(rest, _)| encoding::of_member(rest));
            for (_, member) in members {
                if seen.insert(member.to_vec()) {
                    out.bulk(member);
                }
            }
        }
        seen.len()
    });
    Ok(())
}
