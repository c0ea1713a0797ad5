//! Keys of any type, and when they expire.

use super::{Args, Context, Done, Fail, NO_KEY, integer, is, said};
use crate::glob;
use crate::keyspace::Keyspace;
use crate::keyspace::encoding::{self, NEVER, Prefix, Record};
use crate::keyspace::records;
use crate::reply::short;

pub fn delete<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let mut deleted = 0;
    for key in &args[1..] {
        deleted += i64::from(records::delete(context, data, key)?);
    }
    context.out.integer(deleted);
    Ok(())
}

pub fn exists<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let there = args[1..].iter().filter(|key| records::find(data, context.now, key).is_some());
    let there = there.count();
    context.out.count(there);
    Ok(())
}

pub fn kind<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let name =
        records::find(data, context.now, args[1]).map_or("none", |record| record.kind.name());
    context.out.simple(name);
    Ok(())
}

/// The time in milliseconds since 1970 that a number of units means. `None`: there is no such time.
pub fn time(context: &Context<'_>, number: i64, unit: i64, is_relative: bool) -> Option<u64> {
    let base = if is_relative { i64::try_from(context.now).ok()? } else { 0 };
    let time = number.checked_mul(unit)?.checked_add(base)?;
    // What is at the beginning of 1970 or before has expired.
    Some(u64::try_from(time).unwrap_or(0).max(1))
}

/// When a key is to expire, if it is as the client wants it to be.
#[derive(Default)]
struct Wish {
    if_none: bool,
    if_some: bool,
    if_later: bool,
    if_earlier: bool,
}

impl Wish {
    fn of(args: Args<'_>) -> Result<Self, Fail> {
        let mut wish = Self::default();
        for word in args {
            let place = match word {
                word if is(word, "NX") => &mut wish.if_none,
                word if is(word, "XX") => &mut wish.if_some,
                word if is(word, "GT") => &mut wish.if_later,
                word if is(word, "LT") => &mut wish.if_earlier,
                word => {
                    let word = short(word);
                    return Err(Fail::Said(format!("ERR Unsupported option {word}").into()));
                }
            };
            *place = true;
        }
        if wish.if_none && (wish.if_some || wish.if_later || wish.if_earlier) {
            let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
            return Err(said(text));
        }
        if wish.if_later && wish.if_earlier {
            return Err(said("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(wish)
    }

    fn holds(&self, now: u64, new: u64) -> bool {
        let is_later = now != NEVER && new > now;
        let is_earlier = now == NEVER || new < now;
        !(self.if_none && now != NEVER
            || self.if_some && now == NEVER
            || self.if_later && !is_later
            || self.if_earlier && !is_earlier)
    }
}

fn set_expiry<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    args: Args<'_>,
    unit: i64,
    is_relative: bool,
    name: &str,
) -> Done {
    let wish = Wish::of(&args[3..])?;
    let number = integer(args[2])?;
    let time = time(context, number, unit, is_relative)
        .ok_or_else(|| Fail::Said(format!("ERR invalid expire time in '{name}' command").into()))?;
    let key = args[1];
    let is_set = match records::known(context, data, key)? {
        Some(known) if wish.holds(known.expiry, time) => {
            if records::has_expired(time, context.now) {
                records::delete_known(context, data, key, known)?;
            } else {
                records::expire(context, data, key, known, time)?;
            }
            true
        }
        _ => false,
    };
    context.out.integer(is_set.into());
    Ok(())
}

pub fn expire<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    set_expiry(context, data, args, 1000, true, "expire")
}

pub fn expire_ms<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    set_expiry(context, data, args, 1, true, "pexpire")
}

pub fn expire_at<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    set_expiry(context, data, args, 1000, false, "expireat")
}

pub fn expire_at_ms<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    set_expiry(context, data, args, 1, false, "pexpireat")
}

pub fn persist<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let known = records::known(context, data, args[1])?.filter(|known| known.expiry != NEVER);
    if let Some(known) = known {
        records::expire(context, data, args[1], known, NEVER)?;
    }
    context.out.integer(known.is_some().into());
    Ok(())
}

/// The time of expiry of a key; -1: never; -2: there is no key.
fn expiry_of<K: Keyspace>(context: &Context<'_>, data: &K, key: &[u8]) -> Result<i64, i64> {
    match records::find(data, context.now, key) {
        None => Err(-2),
        Some(Record { expiry: NEVER, .. }) => Err(-1),
        Some(record) => Ok(record.expiry as i64),
    }
}

pub fn left<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let left =
        expiry_of(context, data, args[1]).map(|time| (time - context.now as i64 + 500) / 1000);
    context.out.integer(left.unwrap_or_else(|code| code));
    Ok(())
}

pub fn left_ms<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let left = expiry_of(context, data, args[1]).map(|time| time - context.now as i64);
    context.out.integer(left.unwrap_or_else(|code| code));
    Ok(())
}

pub fn expiry<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let time = expiry_of(context, data, args[1]).map(|time| time.saturating_add(500) / 1000);
    context.out.integer(time.unwrap_or_else(|code| code));
    Ok(())
}

pub fn expiry_ms<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let time = expiry_of(context, data, args[1]);
    context.out.integer(time.unwrap_or_else(|code| code));
    Ok(())
}

pub fn keys<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let (now, pattern) = (context.now, args[1]);
    context.out.counted(|out| {
        let prefix = Prefix::new(encoding::KEYS.to_vec());
        let keys = data.prefixed(&prefix).filter_map(|(rest, record)| {
            let (_, key) = encoding::of_member(rest)?;
            let record = Record::of(record)?;
            let is_in = !records::has_expired(record.expiry, now) && glob::matches(pattern, key);
            is_in.then_some(key)
        });
        keys.inspect(|key| out.bulk(key)).count()
    });
    Ok(())
}

pub fn random<K: Keyspace>(context: &mut Context<'_>, data: &K, _: Args<'_>) -> Done {
    let prefix = Prefix::new(encoding::KEYS.to_vec());
    let from = prefix.at(&context.random.u64(..).to_be_bytes());
    let behind = data.range(std::ops::Bound::Included(&from), prefix.end());
    let behind = behind.filter_map(|(key, record)| Some((prefix.rest(key)?, record)));
    let mut all = behind.chain(data.prefixed(&prefix));
    let key = all.find_map(|(rest, record)| {
        let is_there = !records::has_expired(Record::of(record)?.expiry, context.now);
        is_there.then_some(encoding::of_member(rest)?.1)
    });
    context.out.bulk_or_null(key);
    Ok(())
}

pub fn rename<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let known = records::known(context, data, args[1])?.ok_or(NO_KEY)?;
    if args[1] != args[2] {
        let target = records::known(context, data, args[2])?;
        records::rename(context, data, (args[1], args[2]), known, target)?;
    }
    context.out.ok();
    Ok(())
}

pub fn rename_new<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let known = records::known(context, data, args[1])?.ok_or(NO_KEY)?;
    let is_new = records::known(context, data, args[2])?.is_none();
    if is_new {
        records::rename(context, data, (args[1], args[2]), known, None)?;
    }
    context.out.integer(is_new.into());
    Ok(())
}
