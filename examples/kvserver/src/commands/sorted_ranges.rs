//! Parts of sorted sets: by rank and by score. A rank is found by a walk over the members before it.

use std::ops::Bound;

use super::{Args, Context, Done, Fail, SYNTAX, integer, is, part, said, sorted, sorted_lex};
use crate::keyspace::Keyspace;
use crate::keyspace::encoding::{self, Head, Kind, Prefix};
use crate::keyspace::records;
use crate::numbers;

/// An end of a range of scores, and whether the score itself is in it.
#[derive(Clone, Copy)]
struct End {
    score: f64,
    is_in: bool,
}

impl End {
    fn of(text: &[u8]) -> Result<Self, Fail> {
        let (text, is_in) = match text.strip_prefix(b"(") {
            Some(rest) => (rest, false),
            None => (text, true),
        };
        let score = numbers::float(text).ok_or(said("ERR min or max is not a float"))?;
        Ok(Self { score, is_in })
    }
}

/// The keys of the records between two scores: from the first one inclusive, to the second one exclusive.
struct Scores {
    prefix: Prefix,
    from: Vec<u8>,
    /// `None`: to the end.
    to: Option<Vec<u8>>,
}

impl Scores {
    fn of(head: &Head, (min, max): (End, End)) -> Option<Self> {
        if min.score > max.score || min.score == max.score && !(min.is_in && max.is_in) {
            return None;
        }
        let prefix = encoding::scores(head.id);
        // Behind all members of a score are those of the next greater bytes.
        let behind =
            |score: [u8; 8]| u64::from_be_bytes(score).checked_add(1).map(u64::to_be_bytes);
        let (low, high) = (numbers::ordered(min.score), numbers::ordered(max.score));
        let low = if min.is_in { Some(low) } else { behind(low) };
        let high = if max.is_in { behind(high) } else { Some(high) };
        let to = high.map(|high| prefix.at(&high));
        Some(Self { from: prefix.at(&low?), to, prefix })
    }

    /// The scores and members in the range, in order.
    fn walk<'k, K: Keyspace>(
        &'k self,
        data: &'k K,
    ) -> impl DoubleEndedIterator<Item = ([u8; 8], &'k [u8])> {
        let to = self.to.as_deref().map_or(self.prefix.end(), Bound::Excluded);
        let range = data.range(Bound::Included(&self.from), to);
        range.filter_map(|(key, _)| sorted::of_scored(self.prefix.rest(key)?))
    }
}

/// What a command about a part of a sorted set wants.
#[derive(Default)]
struct Wish {
    by_score: bool,
    by_member: bool,
    is_reverse: bool,
    has_scores: bool,
    limit: Option<(i64, i64)>,
}

impl Wish {
    fn of(args: Args<'_>, start: Self, is_range: bool) -> Result<Self, Fail> {
        let mut wish = start;
        let mut rest = args;
        while let [word, others @ ..] = rest {
            rest = others;
            if is(word, "WITHSCORES") {
                wish.has_scores = true;
            } else if is(word, "LIMIT") {
                let [from, count, others @ ..] = rest else { return Err(SYNTAX) };
                wish.limit = Some((integer(from)?, integer(count)?));
                rest = others;
            } else if is_range && is(word, "BYSCORE") {
                wish.by_score = true;
            } else if is_range && is(word, "REV") {
                wish.is_reverse = true;
            } else if is_range && is(word, "BYLEX") {
                wish.by_member = true;
            } else {
                return Err(SYNTAX);
            }
        }
        if wish.by_score && wish.by_member {
            return Err(SYNTAX);
        }
        if wish.has_scores && wish.by_member {
            return Err(said(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        if wish.limit.is_some() && !wish.by_score && !wish.by_member {
            let text = "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
            return Err(said(text));
        }
        Ok(wish)
    }
}

/// Writes members, with their scores if that is wanted.
pub fn write<'k>(
    context: &mut Context<'_>,
    has_scores: bool,
    members: impl Iterator<Item = ([u8; 8], &'k [u8])>,
) {
    context.out.counted(|out| {
        let each = if has_scores { 2 } else { 1 };
        let written = members.inspect(|(score, member)| {
            out.bulk(member);
            if has_scores {
                out.float(numbers::of_ordered(*score));
            }
        });
        written.count() * each
    });
}

fn write_scores<K: Keyspace>(
    context: &mut Context<'_>,
    data: &K,
    key: &[u8],
    (min, max): (&[u8], &[u8]),
    wish: &Wish,
) -> Done {
    let ends = (End::of(min)?, End::of(max)?);
    let Some(head) = sorted::head(context, data, key)? else {
        context.out.array(0);
        return Ok(());
    };
    let (from, count) = wish.limit.unwrap_or((0, -1));
    let from = usize::try_from(from);
    let (Some(scores), Ok(from)) = (Scores::of(&head, ends), from) else {
        context.out.array(0);
        return Ok(());
    };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let mut members = scores.walk(data);
    let members =
        std::iter::from_fn(|| if wish.is_reverse { members.next_back() } else { members.next() });
    write(context, wish.has_scores, members.skip(from).take(count));
    Ok(())
}

fn write_ranks<K: Keyspace>(
    context: &mut Context<'_>,
    data: &K,
    key: &[u8],
    (from, to): (&[u8], &[u8]),
    wish: &Wish,
) -> Done {
    let ranks = (integer(from)?, integer(to)?);
    let Some(head) = sorted::head(context, data, key)? else {
        context.out.array(0);
        return Ok(());
    };
    let len = head.len();
    let part = part(len, ranks);
    let count = (part.end - part.start) as usize;
    let prefix = encoding::scores(head.id);
    let mut members = data.prefixed(&prefix).filter_map(|(rest, _)| sorted::of_scored(rest));
    // The walk begins at the nearer end.
    let behind = (len - part.end) as usize;
    let before = part.start as usize;
    if before <= behind {
        let members =
            std::iter::from_fn(
                || if wish.is_reverse { members.next_back() } else { members.next() },
            );
        write(context, wish.has_scores, members.skip(before).take(count));
    } else {
        let members =
            std::iter::from_fn(
                || if wish.is_reverse { members.next() } else { members.next_back() },
            );
        let mut part: Vec<_> = members.skip(behind).take(count).collect();
        part.reverse();
        write(context, wish.has_scores, part.into_iter());
    }
    Ok(())
}

pub fn range<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let wish = Wish::of(&args[4..], Wish::default(), true)?;
    let ends = (args[2], args[3]);
    if wish.by_member {
        let order = (wish.is_reverse, wish.limit);
        return sorted_lex::write(context, data, args[1], ends, order);
    }
    match (wish.by_score, wish.is_reverse) {
        (true, true) => write_scores(context, data, args[1], (ends.1, ends.0), &wish),
        (true, false) => write_scores(context, data, args[1], ends, &wish),
        (false, _) => write_ranks(context, data, args[1], ends, &wish),
    }
}

pub fn reverse<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let has_scores = match &args[4..] {
        [] => false,
        [word] if is(word, "WITHSCORES") => true,
        _ => return Err(SYNTAX),
    };
    let wish = Wish { is_reverse: true, has_scores, ..Wish::default() };
    write_ranks(context, data, args[1], (args[2], args[3]), &wish)
}

pub fn by_score<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let start = Wish { by_score: true, ..Wish::default() };
    let wish = Wish::of(&args[4..], start, false)?;
    write_scores(context, data, args[1], (args[2], args[3]), &wish)
}

pub fn reverse_by_score<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let start = Wish { by_score: true, is_reverse: true, ..Wish::default() };
    let wish = Wish::of(&args[4..], start, false)?;
    write_scores(context, data, args[1], (args[3], args[2]), &wish)
}

pub fn count<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    let ends = (End::of(args[2])?, End::of(args[3])?);
    let head = sorted::head(context, data, args[1])?;
    let scores = head.and_then(|head| Scores::of(&head, ends));
    context.out.count(scores.map_or(0, |scores| scores.walk(data).count()));
    Ok(())
}

fn write_rank<K: Keyspace>(
    context: &mut Context<'_>,
    data: &K,
    args: Args<'_>,
    is_reverse: bool,
) -> Done {
    let head = sorted::head(context, data, args[1])?;
    let found = head.and_then(|head| Some((head, sorted::ordered_score(data, &head, args[2])?)));
    let Some((head, score)) = found else {
        context.out.null();
        return Ok(());
    };
    let prefix = encoding::scores(head.id);
    let place = encoding::scored(head.id, score, args[2]);
    let (from, to) = if is_reverse {
        (Bound::Excluded(&place[..]), prefix.end())
    } else {
        (Bound::Included(prefix.bytes()), Bound::Excluded(&place[..]))
    };
    context.out.count(data.range(from, to).count());
    Ok(())
}

pub fn rank<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    write_rank(context, data, args, false)
}

pub fn reverse_rank<K: Keyspace>(context: &mut Context<'_>, data: &K, args: Args<'_>) -> Done {
    write_rank(context, data, args, true)
}

/// Removes members, and says how many.
pub fn remove<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    key: &[u8],
    members: &[([u8; 8], Vec<u8>)],
) -> Done {
    if let Some(mut set) =
        records::present(context, data, key, Kind::Sorted)?.filter(|_| !members.is_empty())
    {
        for (score, member) in members {
            sorted::remove_scored(data, &mut set, *score, member)?;
        }
        set.put(context, data, key)?;
    }
    context.out.count(members.len());
    Ok(())
}

pub fn remove_by_score<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    args: Args<'_>,
) -> Done {
    let ends = (End::of(args[2])?, End::of(args[3])?);
    let head = sorted::head(context, data, args[1])?;
    let scores = head.and_then(|head| Scores::of(&head, ends));
    let members: Vec<_> = scores.map_or_else(Vec::new, |scores| {
        scores.walk(data).map(|(score, member)| (score, member.to_vec())).collect()
    });
    remove(context, data, args[1], &members)
}

pub fn remove_by_rank<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    args: Args<'_>,
) -> Done {
    let ranks = (integer(args[2])?, integer(args[3])?);
    let members: Vec<_> = match sorted::head(context, data, args[1])? {
        None => Vec::new(),
        Some(head) => {
            let part = part(head.len(), ranks);
            let prefix = encoding::scores(head.id);
            let all = data.prefixed(&prefix).filter_map(|(rest, _)| sorted::of_scored(rest));
            all.skip(part.start as usize)
                .take((part.end - part.start) as usize)
                .map(|(score, member)| (score, member.to_vec()))
                .collect()
        }
    };
    remove(context, data, args[1], &members)
}
