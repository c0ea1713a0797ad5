//! Hashes.

use super::{Args, Context, Done, OVERFLOW, float, integer, said, wrong_arity};
use crate::keyspace::Keyspace;
use crate::keyspace::encoding::{self, Head, Kind};
use crate::keyspace::records::{self, Collection};
use crate::numbers;

/// The key of a field's record.
fn place<K: Keyspace>(data: &K, head: &Head, field: &[u8]) -> Vec<u8> {
    encoding::member(Kind::Hash, head.id, data.seed(), field)
}

/// Sets a field. True: it is new.
fn put<K: Keyspace>(
    data: &mut K,
    hash: &mut Collection,
    field: &[u8],
    value: &[u8],
) -> Result<bool, super::Fail> {
    let place = place(data, &hash.head, field);
    let is_new = data.insert(&place, value)?;
    hash.head.end += u64::from(is_new);
    Ok(is_new)
}

fn put_all<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    args: Args<'_>,
    name: &str,
) -> Result<i64, super::Fail> {
    let (pairs, rest) = args[2..].as_chunks::<2>();
    if !rest.is_empty() {
        return Err(wrong_arity(name));
    }
    let mut hash = records::collection(context, data, args[1], Kind::Hash)?;
    let mut fresh = 0;
    for [field, value] in pairs {
        fresh += i64::from(put(data, &mut hash, field, value)?);
    }
    hash.put(context, data, args[1])?;
    Ok(fresh)
}

pub fn set<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let fresh = put_all(context, data, args, "hset")?;
    context.out.integer(fresh);
    Ok(())
}

pub fn set_ok<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    put_all(context, data, args, "hmset")?;
    context.out.ok();
    Ok(())
}

pub fn set_new<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let is_new = value(context, data, args[1], args[2])?.is_none();
    if is_new {
        put_all(context, data, args, "hsetnx")?;
    }
    context.out.integer(is_new.into());
    Ok(())
}

/// The value of a field.
fn value<'k, K: Keyspace>(
    context: &Context<'_>,
    data: &'k K,
    key: &[u8],
    field: &[u8],
) -> Result<Option<&'k [u8]>, super::Fail> {
    let head = records::head(data, context.now, key, Kind::Hash)?;
    Ok(head.and_then(|head| data.get(&place(data, &head, field))))
}

pub fn get<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let value = value(context, data, args[1], args[2])?;
    context.out.bulk_or_null(value);
    Ok(())
}

pub fn get_many<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let head = records::head(data, context.now, args[1], Kind::Hash)?;
    context.out.array(args.len() - 2);
    for field in &args[2..] {
        let value = head.and_then(|head| data.get(&place(data, &head, field)));
        context.out.bulk_or_null(value);
    }
    Ok(())
}

pub fn exists<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let value = value(context, data, args[1], args[2])?;
    context.out.integer(value.is_some().into());
    Ok(())
}

pub fn length_of<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let value = value(context, data, args[1], args[2])?;
    context.out.count(value.map_or(0, <[u8]>::len));
    Ok(())
}

pub fn length<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let head = records::head(data, context.now, args[1], Kind::Hash)?;
    context.out.integer(head.map_or(0, |head| head.len() as i64));
    Ok(())
}

/// Writes fields, values, or both.
fn walk<K: Keyspace>(
    context: &mut Context<'_>,
    data: &K,
    args: Args<'_>,
    has_fields: bool,
    has_values: bool,
) -> Done {
    let head = records::head(data, context.now, args[1], Kind::Hash)?;
    context.out.counted(|out| {
        let Some(head) = head else { return 0 };
        let prefix = encoding::members(Kind::Hash, head.id);
        let mut replies = 0;
        for (rest, value) in data.prefixed(&prefix) {
            if let Some((_, field)) = encoding::of_member(rest).filter(|_| has_fields) {
                out.bulk(field);
                replies += 1;
            }
            if has_values {
                out.bulk(value);
                replies += 1;
            }
        }
        replies
    });
    Ok(())
}

pub fn all<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    walk(context, data, args, true, true)
}

pub fn fields<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    walk(context, data, args, true, false)
}

pub fn values<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    walk(context, data, args, false, true)
}

pub fn delete<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let mut deleted = 0;
    if let Some(mut hash) = records::present(context, data, args[1], Kind::Hash)? {
        for field in &args[2..] {
            let place = place(data, &hash.head, field);
            deleted += u64::from(data.remove(&place)?);
        }
        if deleted > 0 {
            hash.head.end -= deleted;
            hash.put(context, data, args[1])?;
        }
    }
    context.out.integer(deleted as i64);
    Ok(())
}

pub fn increment_by<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let by = integer(args[3])?;
    let number = match value(context, data, args[1], args[2])? {
        Some(text) => numbers::integer(text).ok_or(said("ERR hash value is not an integer"))?,
        None => 0,
    };
    let sum = number.checked_add(by).ok_or(OVERFLOW)?;
    let mut hash = records::collection(context, data, args[1], Kind::Hash)?;
    put(data, &mut hash, args[2], sum.to_string().as_bytes())?;
    hash.put(context, data, args[1])?;
    context.out.integer(sum);
    Ok(())
}

pub fn increment_by_float<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    args: Args<'_>,
) -> Done {
    if !float(args[3])?.is_finite() {
        return Err(said("ERR value is NaN or Infinity"));
    }
    let number = value(context, data, args[1], args[2])?.unwrap_or(b"0");
    numbers::float(number).ok_or(said("ERR hash value is not a float"))?;
    let text =
        numbers::sum(number, args[3]).ok_or(said("ERR increment would produce NaN or Infinity"))?;
    let mut hash = records::collection(context, data, args[1], Kind::Hash)?;
    put(data, &mut hash, args[2], text.as_bytes())?;
    hash.put(context, data, args[1])?;
    context.out.bulk(text.as_bytes());
    Ok(())
}
