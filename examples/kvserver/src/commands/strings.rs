//! Strings.

use super::{
    Args, Context, Done, Fail, NO_FLOAT, NO_INTEGER, OVERFLOW, SYNTAX, TOO_LONG, float, integer,
    is, keys, wrong_arity,
};
use crate::keyspace::Keyspace;
use crate::keyspace::encoding::{Kind, NEVER, Record};
use crate::keyspace::records::{self, Known};
use crate::net::protocol::MOST_BULK;
use crate::numbers;

/// Fails if a string would be too long.
fn check_length(bytes: usize) -> Done {
    if bytes > MOST_BULK as usize { Err(TOO_LONG) } else { Ok(()) }
}

/// What a key is, and its string, for a command that changes it.
fn known_text<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    key: &[u8],
) -> Result<(Option<Known>, Option<Vec<u8>>), Fail> {
    let known = records::known(context, data, key)?;
    let text = records::text(data, context.now, key)?.map(<[u8]>::to_vec);
    Ok((known, text))
}

pub fn get<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let text = records::text(data, context.now, args[1])?;
    context.out.bulk_or_null(text);
    Ok(())
}

/// Options that say when a key expires: milliseconds of a unit, and whether the time begins now.
const UNITS: [(&str, i64, bool); 4] =
    [("EX", 1000, true), ("PX", 1, true), ("EXAT", 1000, false), ("PXAT", 1, false)];

/// What `SET` was asked to do.
#[derive(Default)]
struct Wish {
    is_new: bool,
    is_present: bool,
    keeps_expiry: bool,
    gets: bool,
    expiry: Option<u64>,
}

impl Wish {
    fn of(context: &Context<'_>, args: Args<'_>) -> Result<Self, Fail> {
        let mut wish = Self::default();
        let mut time = None;
        let mut rest = args.iter();
        while let Some(word) = rest.next() {
            if is(word, "NX") && !wish.is_present {
                wish.is_new = true;
            } else if is(word, "XX") && !wish.is_new {
                wish.is_present = true;
            } else if is(word, "GET") {
                wish.gets = true;
            } else if is(word, "KEEPTTL") && time.is_none() {
                wish.keeps_expiry = true;
            } else {
                let unit = UNITS.iter().find(|(name, ..)| is(word, name)).ok_or(SYNTAX)?;
                let number = rest.next().ok_or(SYNTAX)?;
                if wish.keeps_expiry || time.is_some() {
                    return Err(SYNTAX);
                }
                time = Some((number, unit));
            }
        }
        if let Some((number, (_, unit, is_relative))) = time {
            wish.expiry = Some(expiry(context, number, *unit, *is_relative, "set")?);
        }
        Ok(wish)
    }
}

/// The time of expiry that an argument names, which is not to be in the past of 1970.
fn expiry(
    context: &Context<'_>,
    number: &[u8],
    unit: i64,
    is_relative: bool,
    name: &str,
) -> Result<u64, Fail> {
    let number = integer(number)?;
    let bad = || Fail::Said(format!("ERR invalid expire time in '{name}' command").into());
    if number <= 0 {
        return Err(bad());
    }
    keys::time(context, number, unit, is_relative).ok_or_else(bad)
}

pub fn set<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let (key, value) = (args[1], args[2]);
    if args.len() == 3 && records::put_plain_text(context, data, key, value)? {
        context.out.ok();
        return Ok(());
    }
    let wish = Wish::of(context, &args[3..])?;
    let before = records::known(context, data, key)?;
    let mut reply = None;
    if wish.gets {
        reply = records::text(data, context.now, key)?.map(<[u8]>::to_vec);
    }
    let is_refused = wish.is_new && before.is_some() || wish.is_present && before.is_none();
    if !is_refused {
        let kept = if wish.keeps_expiry { None } else { Some(NEVER) };
        records::put_text(context, data, key, before, value, wish.expiry.or(kept))?;
    }
    match (wish.gets, is_refused) {
        (true, _) => context.out.bulk_or_null(reply.as_deref()),
        (false, true) => context.out.null(),
        (false, false) => context.out.ok(),
    }
    Ok(())
}

fn put_always<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    (key, value): (&[u8], &[u8]),
    expiry: u64,
) -> Done {
    let before = records::known(context, data, key)?;
    records::put_text(context, data, key, before, value, Some(expiry))
}

pub fn set_new<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let is_new = records::known(context, data, args[1])?.is_none();
    if is_new {
        records::put_text(context, data, args[1], None, args[2], Some(NEVER))?;
    }
    context.out.integer(is_new.into());
    Ok(())
}

pub fn set_for<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let expiry = expiry(context, args[2], 1000, true, "setex")?;
    put_always(context, data, (args[1], args[3]), expiry)?;
    context.out.ok();
    Ok(())
}

pub fn set_for_ms<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let expiry = expiry(context, args[2], 1, true, "psetex")?;
    put_always(context, data, (args[1], args[3]), expiry)?;
    context.out.ok();
    Ok(())
}

/// The pairs of a command's arguments.
fn pairs<'a>(
    args: Args<'a>,
    name: &str,
) -> Result<impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a>, Fail> {
    let (pairs, rest) = args[1..].as_chunks::<2>();
    if !rest.is_empty() {
        return Err(wrong_arity(name));
    }
    Ok(pairs.iter().map(|[key, value]| (*key, *value)))
}

pub fn set_many<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    for pair in pairs(args, "mset")? {
        put_always(context, data, pair, NEVER)?;
    }
    context.out.ok();
    Ok(())
}

pub fn set_many_new<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let now = context.now;
    let is_new = pairs(args, "msetnx")?.all(|(key, _)| records::find(data, now, key).is_none());
    if is_new {
        for pair in pairs(args, "msetnx")? {
            put_always(context, data, pair, NEVER)?;
        }
    }
    context.out.integer(is_new.into());
    Ok(())
}

pub fn get_set<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let (before, text) = known_text(context, data, args[1])?;
    records::put_text(context, data, args[1], before, args[2], Some(NEVER))?;
    context.out.bulk_or_null(text.as_deref());
    Ok(())
}

/// Reads a string, and has it expire at another time, or never.
pub fn get_expire<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let (unit, number) = match &args[2..] {
        [] => (None, None),
        [word] if is(word, "PERSIST") => (None, Some(&b""[..])),
        [word, number] => {
            let unit = UNITS.iter().find(|(name, ..)| is(word, name)).ok_or(SYNTAX)?;
            (Some(unit), Some(*number))
        }
        _ => return Err(SYNTAX),
    };
    let (before, text) = known_text(context, data, args[1])?;
    if let (Some(before), Some(number)) = (before, number) {
        let expiry = match unit {
            Some((_, unit, is_relative)) => expiry(context, number, *unit, *is_relative, "getex")?,
            None => NEVER,
        };
        records::expire(context, data, args[1], before, expiry)?;
    }
    context.out.bulk_or_null(text.as_deref());
    Ok(())
}

pub fn get_delete<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let (before, text) = known_text(context, data, args[1])?;
    if let Some(before) = before {
        records::delete_known(context, data, args[1], before)?;
    }
    context.out.bulk_or_null(text.as_deref());
    Ok(())
}

pub fn get_many<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    context.out.array(args.len() - 1);
    for key in &args[1..] {
        match records::find(data, context.now, key) {
            Some(Record { kind: Kind::Text, body, .. }) => context.out.bulk(body),
            _ => context.out.null(),
        }
    }
    Ok(())
}

pub fn append<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let (before, text) = known_text(context, data, args[1])?;
    let mut text = text.unwrap_or_default();
    check_length(text.len() + args[2].len())?;
    text.extend_from_slice(args[2]);
    records::put_text(context, data, args[1], before, &text, None)?;
    context.out.count(text.len());
    Ok(())
}

pub fn length<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let text = records::text(data, context.now, args[1])?;
    context.out.count(text.map_or(0, <[u8]>::len));
    Ok(())
}

pub fn range<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let (from, to) = (integer(args[2])?, integer(args[3])?);
    let text = records::text(data, context.now, args[1])?.unwrap_or_default();
    let len = text.len() as i64;
    let of = |index: i64| if index < 0 { len.saturating_add(index).max(0) } else { index };
    let is_backward = from < 0 && to < 0 && from > to;
    let (from, to) = (of(from), of(to).min(len - 1));
    let part = if is_backward || from > to { 0..0 } else { from as usize..to as usize + 1 };
    context.out.bulk(text.get(part).unwrap_or_default());
    Ok(())
}

pub fn set_range<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let at = integer(args[2])?;
    let at = usize::try_from(at).map_err(|_| super::said("ERR offset is out of range"))?;
    let (before, text) = known_text(context, data, args[1])?;
    let mut text = text.unwrap_or_default();
    let patch = args[3];
    if !patch.is_empty() {
        let end = at.saturating_add(patch.len());
        check_length(end)?;
        if text.len() < end {
            text.resize(end, 0);
        }
        text[at..end].copy_from_slice(patch);
        records::put_text(context, data, args[1], before, &text, None)?;
    }
    context.out.count(text.len());
    Ok(())
}

fn add<K: Keyspace>(context: &mut Context<'_>, data: &mut K, key: &[u8], by: i64) -> Done {
    let before = records::known(context, data, key)?;
    let number = match records::text(data, context.now, key)? {
        Some(text) => numbers::integer(text).ok_or(NO_INTEGER)?,
        None => 0,
    };
    let sum = number.checked_add(by).ok_or(OVERFLOW)?;
    records::put_text(context, data, key, before, sum.to_string().as_bytes(), None)?;
    context.out.integer(sum);
    Ok(())
}

pub fn increment<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    add(context, data, args[1], 1)
}

pub fn decrement<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    add(context, data, args[1], -1)
}

pub fn increment_by<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let by = integer(args[2])?;
    add(context, data, args[1], by)
}

pub fn decrement_by<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let by = integer(args[2])?.checked_neg().ok_or(super::said("ERR decrement would overflow"))?;
    add(context, data, args[1], by)
}

pub fn increment_by_float<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    args: Args<'_>,
) -> Done {
    let before = records::known(context, data, args[1])?;
    let number = records::text(data, context.now, args[1])?.unwrap_or(b"0");
    numbers::float(number).ok_or(NO_FLOAT)?;
    float(args[2])?;
    let text = numbers::sum(number, args[2])
        .ok_or(super::said("ERR increment would produce NaN or Infinity"))?;
    records::put_text(context, data, args[1], before, text.as_bytes(), None)?;
    context.out.bulk(text.as_bytes());
    Ok(())
}
