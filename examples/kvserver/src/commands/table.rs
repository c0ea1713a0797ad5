//! The table of commands: names, numbers of arguments, functions.

use super::{
    Args, Context, Done, general, hashes, keys, list_places, lists, scan, set_algebra, sets,
    sorted, sorted_lex, sorted_ranges, strings,
};
use crate::keyspace::Keyspace;

/// How a command is run.
pub enum Run<K> {
    /// It needs no data.
    Free(fn(&mut Context<'_>, Args<'_>) -> Done),
    /// It reads.
    Read(fn(&mut Context<'_>, &K, Args<'_>) -> Done),
    /// It changes the data as a whole or not at all by itself. Deletions are of this kind, and run where there is no room.
    Whole(fn(&mut Context<'_>, &mut K, Args<'_>) -> Done),
    /// It may change several records: a transaction undoes them if it fails.
    Write(fn(&mut Context<'_>, &mut K, Args<'_>) -> Done),
    /// It is about the connection.
    Session(Session),
}

impl<K> Clone for Run<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Run<K> {}

/// Commands about the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Session {
    Auth,
    Client,
    Discard,
    Exec,
    Hello,
    Multi,
    Quit,
    Save,
    Select,
    Shutdown,
    Unwatch,
    Watch,
}

/// A command.
pub struct Command<K> {
    /// In small letters.
    pub name: &'static str,
    /// The number of arguments, the name included. Negative: that or more.
    pub arity: i32,
    pub run: Run<K>,
}

impl<K> Command<K> {
    /// Whether it may change the data.
    pub fn writes(&self) -> bool {
        matches!(self.run, Run::Write(_) | Run::Whole(_))
    }

    pub fn takes(&self, arguments: usize) -> bool {
        let least = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { arguments >= least } else { arguments == least }
    }
}

/// All commands, in the order of their names.
pub struct Table<K: 'static>(Vec<&'static Command<K>>);

impl<K: Keyspace> Table<K> {
    pub fn new() -> Self {
        let mut all: Vec<&Command<K>> = Self::ALL.iter().collect();
        all.sort_unstable_by_key(|command| command.name);
        Self(all)
    }

    /// The command of a name, in any case.
    pub fn find(&self, name: &[u8]) -> Option<&'static Command<K>> {
        let mut small = [0; 16];
        let small = small.get_mut(..name.len())?;
        small.copy_from_slice(name);
        small.make_ascii_lowercase();
        let at = self.0.binary_search_by(|command| command.name.as_bytes().cmp(small)).ok()?;
        self.0.get(at).copied()
    }

    const ALL: &'static [Command<K>] = &[
        free("command", -1, general::command::<K>),
        free("config", -2, general::config),
        free("echo", 2, general::echo),
        free("lastsave", 1, general::last_save),
        free("ping", -1, general::ping),
        free("save", -1, general::save),
        free("time", 1, general::time),
        free("wait", 3, general::wait),
        read("dbsize", 1, general::size),
        read("info", -1, general::info),
        whole("flushall", -1, general::flush),
        whole("flushdb", -1, general::flush),
        session("bgsave", -1, Session::Save),
        session("auth", -2, Session::Auth),
        session("client", -2, Session::Client),
        session("discard", 1, Session::Discard),
        session("exec", 1, Session::Exec),
        session("hello", -1, Session::Hello),
        session("multi", 1, Session::Multi),
        session("quit", -1, Session::Quit),
        session("select", 2, Session::Select),
        session("shutdown", -1, Session::Shutdown),
        session("unwatch", 1, Session::Unwatch),
        session("watch", -2, Session::Watch),
        whole("del", -2, keys::delete),
        whole("unlink", -2, keys::delete),
        whole("expire", -3, keys::expire),
        whole("expireat", -3, keys::expire_at),
        whole("pexpire", -3, keys::expire_ms),
        whole("pexpireat", -3, keys::expire_at_ms),
        whole("persist", 2, keys::persist),
        write("rename", 3, keys::rename),
        write("renamenx", 3, keys::rename_new),
        read("exists", -2, keys::exists),
        read("touch", -2, keys::exists),
        read("expiretime", 2, keys::expiry),
        read("pexpiretime", 2, keys::expiry_ms),
        read("keys", 2, keys::keys),
        read("pttl", 2, keys::left_ms),
        read("randomkey", 1, keys::random),
        read("ttl", 2, keys::left),
        read("type", 2, keys::kind),
        read("scan", -2, scan::keys),
        whole("append", 3, strings::append),
        whole("decr", 2, strings::decrement),
        whole("decrby", 3, strings::decrement_by),
        whole("getdel", 2, strings::get_delete),
        whole("getex", -2, strings::get_expire),
        whole("getset", 3, strings::get_set),
        whole("incr", 2, strings::increment),
        whole("incrby", 3, strings::increment_by),
        whole("incrbyfloat", 3, strings::increment_by_float),
        write("mset", -3, strings::set_many),
        write("msetnx", -3, strings::set_many_new),
        whole("psetex", 4, strings::set_for_ms),
        whole("set", -3, strings::set),
        whole("setex", 4, strings::set_for),
        whole("setnx", 3, strings::set_new),
        whole("setrange", 4, strings::set_range),
        read("get", 2, strings::get),
        read("getrange", 4, strings::range),
        read("substr", 4, strings::range),
        read("mget", -2, strings::get_many),
        read("strlen", 2, strings::length),
        write("hdel", -3, hashes::delete),
        write("hincrby", 4, hashes::increment_by),
        write("hincrbyfloat", 4, hashes::increment_by_float),
        write("hmset", -4, hashes::set_ok),
        write("hset", -4, hashes::set),
        write("hsetnx", 4, hashes::set_new),
        read("hexists", 3, hashes::exists),
        read("hget", 3, hashes::get),
        read("hgetall", 2, hashes::all),
        read("hkeys", 2, hashes::fields),
        read("hlen", 2, hashes::length),
        read("hmget", -3, hashes::get_many),
        read("hscan", -3, scan::hash),
        read("hstrlen", 3, hashes::length_of),
        read("hvals", 2, hashes::values),
        write("linsert", 5, list_places::insert),
        write("lmove", 5, list_places::move_element),
        write("rpoplpush", 3, list_places::pop_push),
        read("lpos", -3, list_places::places_of),
        write("lpop", -2, lists::pop_left),
        write("lpush", -3, lists::push_left),
        write("lpushx", -3, lists::push_left_present),
        write("lrem", 4, lists::remove),
        write("lset", 4, lists::set),
        write("ltrim", 4, lists::trim),
        write("rpop", -2, lists::pop_right),
        write("rpush", -3, lists::push_right),
        write("rpushx", -3, lists::push_right_present),
        read("lindex", 3, lists::index),
        read("llen", 2, lists::length),
        read("lrange", 4, lists::range),
        write("sadd", -3, sets::add),
        write("sdiffstore", -3, set_algebra::store_difference),
        write("sinterstore", -3, set_algebra::store_intersection),
        write("smove", 4, sets::move_member),
        write("sunionstore", -3, set_algebra::store_union),
        read("sintercard", -3, set_algebra::count_common),
        write("spop", -2, sets::pop),
        write("srem", -3, sets::remove),
        read("scard", 2, sets::length),
        read("sdiff", -2, set_algebra::difference),
        read("sinter", -2, set_algebra::intersection),
        read("sismember", 3, sets::contains),
        read("smembers", 2, sets::members),
        read("smismember", -3, sets::contains_many),
        read("srandmember", -2, sets::random),
        read("sscan", -3, scan::set),
        read("sunion", -2, set_algebra::union),
        write("zadd", -4, sorted::add),
        write("zincrby", 4, sorted::increment_by),
        write("zpopmax", -2, sorted::pop_greatest),
        write("zpopmin", -2, sorted::pop_least),
        write("zrem", -3, sorted::remove),
        write("zremrangebylex", 4, sorted_lex::remove),
        read("zlexcount", 4, sorted_lex::count),
        read("zrangebylex", -4, sorted_lex::range),
        read("zrevrangebylex", -4, sorted_lex::reverse),
        write("zremrangebyrank", 4, sorted_ranges::remove_by_rank),
        write("zremrangebyscore", 4, sorted_ranges::remove_by_score),
        read("zcard", 2, sorted::length),
        read("zcount", 4, sorted_ranges::count),
        read("zmscore", -3, sorted::scores),
        read("zrange", -4, sorted_ranges::range),
        read("zrangebyscore", -4, sorted_ranges::by_score),
        read("zrank", 3, sorted_ranges::rank),
        read("zrevrange", -4, sorted_ranges::reverse),
        read("zrevrangebyscore", -4, sorted_ranges::reverse_by_score),
        read("zrevrank", 3, sorted_ranges::reverse_rank),
        read("zscan", -3, scan::sorted),
        read("zscore", 3, sorted::score),
    ];

    /// All commands.
    pub fn all() -> &'static [Command<K>] {
        Self::ALL
    }
}

const fn free<K>(
    name: &'static str,
    arity: i32,
    run: fn(&mut Context<'_>, Args<'_>) -> Done,
) -> Command<K> {
    Command { name, arity, run: Run::Free(run) }
}

const fn read<K>(
    name: &'static str,
    arity: i32,
    run: fn(&mut Context<'_>, &K, Args<'_>) -> Done,
) -> Command<K> {
    Command { name, arity, run: Run::Read(run) }
}

const fn write<K>(
    name: &'static str,
    arity: i32,
    run: fn(&mut Context<'_>, &mut K, Args<'_>) -> Done,
) -> Command<K> {
    Command { name, arity, run: Run::Write(run) }
}

const fn whole<K>(
    name: &'static str,
    arity: i32,
    run: fn(&mut Context<'_>, &mut K, Args<'_>) -> Done,
) -> Command<K> {
    Command { name, arity, run: Run::Whole(run) }
}

const fn session<K>(name: &'static str, arity: i32, what: Session) -> Command<K> {
    Command { name, arity, run: Run::Session(what) }
}
