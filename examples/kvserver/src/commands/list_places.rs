//! Lists: elements by what they are, and elements that move.

use std::ops::Bound;

use super::{Args, Context, Done, Fail, SYNTAX, integer, is, said};
use crate::keyspace::Keyspace;
use crate::keyspace::encoding::{self, Head, Kind};
use crate::keyspace::records::{self, Collection};

/// What `LPOS` was asked for.
struct Wish {
    /// The match that comes first in the reply: negative ones count from the end.
    rank: i64,
    /// `None`: the reply is one place.
    count: Option<u64>,
    /// Elements that are looked at; 0: all.
    most: u64,
}

impl Wish {
    fn of(args: Args<'_>) -> Result<Self, Fail> {
        let mut wish = Self { rank: 1, count: None, most: 0 };
        let (options, rest) = args.as_chunks::<2>();
        let number = |text: &[u8], bad: &'static str| {
            let number = integer(text).ok().and_then(|number| u64::try_from(number).ok());
            number.ok_or(said(bad))
        };
        for [word, value] in options {
            if is(word, "RANK") {
                let rank = integer(value)?;
                if rank == i64::MIN {
                    let text = "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";
                    return Err(said(text));
                }
                if rank == 0 {
                    let text = "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list";
                    return Err(said(text));
                }
                wish.rank = rank;
            } else if is(word, "COUNT") {
                wish.count = Some(number(value, "ERR COUNT can't be negative")?);
            } else if is(word, "MAXLEN") {
                wish.most = number(value, "ERR MAXLEN can't be negative")?;
            } else {
                return Err(SYNTAX);
            }
        }
        if rest.is_empty() { Ok(wish) } else { Err(SYNTAX) }
    }
}

/// Places of elements of a list that are equal to one.
fn places<K: Keyspace>(data: &K, head: &Head, element: &[u8], wish: &Wish) -> Vec<u64> {
    let ends = [head.begin, head.end].map(|index| encoding::listed(head.id, index));
    let mut all = data.range(Bound::Included(&ends[0]), Bound::Excluded(&ends[1]));
    let is_backward = wish.rank < 0;
    let next = || if is_backward { all.next_back() } else { all.next() };
    let most = if wish.most == 0 { u64::MAX } else { wish.most };
    let count = wish.count.map_or(1, |count| if count == 0 { u64::MAX } else { count });
    let matches = std::iter::from_fn(next)
        .zip(0..most.min(head.len()))
        .filter(|((_, value), _)| *value == element)
        .map(|(_, number)| if is_backward { head.len() - 1 - number } else { number });
    let before = usize::try_from(wish.rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
    matches.skip(before).take(usize::try_from(count).unwrap_or(usize::MAX)).collect()
}

pub fn places_of<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let wish = Wish::of(&args[3..])?;
    let head = records::head(data, context.now, args[1], Kind::List)?;
    let found = head.map_or_else(Vec::new, |head| places(data, &head, args[2], &wish));
    match (wish.count, found.first()) {
        (Some(_), _) => {
            context.out.array(found.len());
            found.iter().for_each(|place| context.out.integer(*place as i64));
        }
        (None, Some(place)) => context.out.integer(*place as i64),
        (None, None) => context.out.null(),
    }
    Ok(())
}

/// Has an element go from one index to another.
fn shift<K: Keyspace>(data: &mut K, id: u64, from: u64, to: u64) -> Done {
    let element = data.get(&encoding::listed(id, from)).unwrap_or_default().to_vec();
    data.insert(&encoding::listed(id, to), &element)?;
    Ok(())
}

pub fn insert<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let is_behind = match args[2] {
        word if is(word, "BEFORE") => false,
        word if is(word, "AFTER") => true,
        _ => return Err(SYNTAX),
    };
    let Some(mut list) = records::present(context, data, args[1], Kind::List)? else {
        context.out.integer(0);
        return Ok(());
    };
    let first = Wish { rank: 1, count: None, most: 0 };
    let head = &mut list.head;
    let Some(place) = places(data, head, args[3], &first).first().copied() else {
        context.out.integer(-1);
        return Ok(());
    };
    // As many come before the new element. Those of the shorter side move.
    let before = place + u64::from(is_behind);
    let id = head.id;
    if before < head.len() / 2 {
        for index in head.begin..head.begin + before {
            shift(data, id, index, index - 1)?;
        }
        head.begin -= 1;
    } else {
        for index in (head.begin + before..head.end).rev() {
            shift(data, id, index, index + 1)?;
        }
        head.end += 1;
    }
    data.insert(&encoding::listed(id, head.begin + before), args[4])?;
    list.put(context, data, args[1])?;
    context.out.integer(list.head.len() as i64);
    Ok(())
}

/// Takes an element from an end of a list that has one.
fn take<K: Keyspace>(data: &mut K, list: &mut Collection, is_left: bool) -> Result<Vec<u8>, Fail> {
    let head = &mut list.head;
    let place = encoding::listed(head.id, if is_left { head.begin } else { head.end - 1 });
    let element = data.get(&place).unwrap_or_default().to_vec();
    data.remove(&place)?;
    if is_left {
        head.begin += 1;
    } else {
        head.end -= 1;
    }
    Ok(element)
}

/// Adds an element at an end of a list.
fn add<K: Keyspace>(data: &mut K, list: &mut Collection, is_left: bool, element: &[u8]) -> Done {
    let head = &mut list.head;
    if is_left {
        head.begin -= 1;
        data.insert(&encoding::listed(head.id, head.begin), element)?;
    } else {
        data.insert(&encoding::listed(head.id, head.end), element)?;
        head.end += 1;
    }
    Ok(())
}

/// Moves an element from one list to another, which may be the same.
fn move_one<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    (from, to): (&[u8], &[u8]),
    (is_left, to_left): (bool, bool),
) -> Done {
    let Some(mut list) = records::present(context, data, from, Kind::List)? else {
        context.out.null();
        return Ok(());
    };
    let element;
    if from == to {
        element = take(data, &mut list, is_left)?;
        add(data, &mut list, to_left, &element)?;
        list.put(context, data, from)?;
    } else {
        let mut other = records::collection(context, data, to, Kind::List)?;
        element = take(data, &mut list, is_left)?;
        list.put(context, data, from)?;
        add(data, &mut other, to_left, &element)?;
        other.put(context, data, to)?;
    }
    context.out.bulk(&element);
    Ok(())
}

pub fn move_element<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    let is_left = |word: &[u8]| match word {
        word if is(word, "LEFT") => Ok(true),
        word if is(word, "RIGHT") => Ok(false),
        _ => Err(SYNTAX),
    };
    let sides = (is_left(args[3])?, is_left(args[4])?);
    move_one(context, data, (args[1], args[2]), sides)
}

pub fn pop_push<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    move_one(context, data, (args[1], args[2]), (false, true))
}
