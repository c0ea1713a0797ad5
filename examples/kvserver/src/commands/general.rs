//! Commands about the server.

use std::sync::atomic::Ordering::Relaxed;

use super::{Args, Context, Done, SYNTAX, Table, is, said, wrong_arity};
use crate::glob;
use crate::keyspace::{Keyspace, records};
use crate::net::protocol::MOST_BULK;

pub fn ping(context: &mut Context<'_>, args: Args<'_>) -> Done {
    match args {
        [_] => context.out.simple("PONG"),
        [_, text] => context.out.bulk(text),
        _ => return Err(wrong_arity("ping")),
    }
    Ok(())
}

pub fn echo(context: &mut Context<'_>, args: Args<'_>) -> Done {
    context.out.bulk(args[1]);
    Ok(())
}

pub fn time(context: &mut Context<'_>, _: Args<'_>) -> Done {
    context.out.array(2);
    context.out.bulk((context.now / 1000).to_string().as_bytes());
    context.out.bulk((context.now % 1000 * 1000).to_string().as_bytes());
    Ok(())
}

/// No replicas have acknowledged anything: there are none.
pub fn wait(context: &mut Context<'_>, args: Args<'_>) -> Done {
    super::integer(args[1])?;
    if super::integer(args[2])? < 0 {
        return Err(said("ERR timeout is negative"));
    }
    context.out.integer(0);
    Ok(())
}

/// There is nothing left to save: a write is durable before its reply leaves.
pub fn save(context: &mut Context<'_>, args: Args<'_>) -> Done {
    if args.len() > 1 {
        return Err(wrong_arity("save"));
    }
    context.out.ok();
    Ok(())
}

/// The time of the last copy. Where none are made: all is durable now.
pub fn last_save(context: &mut Context<'_>, _: Args<'_>) -> Done {
    let saves = &context.server.saves;
    let last = if saves.are_made() { saves.status().last } else { context.now / 1000 };
    context.out.integer(last as i64);
    Ok(())
}

/// What `CONFIG GET` says: settings of Redis that clients look at, as this server is.
fn settings(context: &Context<'_>) -> Vec<(&'static str, String)> {
    let server = context.server;
    vec![
        ("appendfsync", "always".into()),
        ("appendonly", "yes".into()),
        ("databases", "1".into()),
        ("dir", server.directory.display().to_string()),
        ("io-threads", server.threads.to_string()),
        ("maxclients", server.most_clients.to_string()),
        ("maxmemory", "0".into()),
        ("maxmemory-policy", "noeviction".into()),
        ("proto-max-bulk-len", MOST_BULK.to_string()),
        ("save", String::new()),
        ("timeout", "0".into()),
    ]
}

pub fn config(context: &mut Context<'_>, args: Args<'_>) -> Done {
    if !is(args[1], "GET") {
        return Err(said(
            "ERR only CONFIG GET is supported: settings are given when the server starts",
        ));
    }
    if args.len() < 3 {
        return Err(wrong_arity("config|get"));
    }
    let patterns: Vec<Vec<u8>> =
        args[2..].iter().map(|pattern| pattern.to_ascii_lowercase()).collect();
    let settings = settings(context);
    context.out.counted(|out| {
        let wanted = settings.iter().filter(|(name, _)| {
            patterns.iter().any(|pattern| glob::matches(pattern, name.as_bytes()))
        });
        let written = wanted.inspect(|(name, value)| {
            out.bulk(name.as_bytes());
            out.bulk(value.as_bytes());
        });
        written.count() * 2
    });
    Ok(())
}

/// Names, numbers of arguments, and whether a command writes. Of where its keys are nothing is said.
pub fn command<K: Keyspace>(context: &mut Context<'_>, args: Args<'_>) -> Done {
    let all = Table::<K>::all();
    match args {
        [_] => {
            context.out.array(all.len());
            for command in all {
                describe(context, command);
            }
        }
        [_, word] if is(word, "COUNT") => context.out.count(all.len()),
        [_, word, ..] if is(word, "DOCS") => context.out.array(0),
        [_, word, names @ ..] if is(word, "INFO") => {
            context.out.array(names.len());
            for name in names {
                match all.iter().find(|command| is(name, command.name)) {
                    Some(command) => describe(context, command),
                    None => context.out.null_array(),
                }
            }
        }
        _ => return Err(said("ERR unknown subcommand. Try COMMAND, COMMAND COUNT, COMMAND INFO.")),
    }
    Ok(())
}

fn describe<K>(context: &mut Context<'_>, command: &super::Command<K>) {
    let flag = match command.run {
        super::Run::Read(_) => "readonly",
        super::Run::Free(_) | super::Run::Session(_) => "fast",
        super::Run::Write(_) | super::Run::Whole(_) => "write",
    };
    context.out.array(6);
    context.out.bulk(command.name.as_bytes());
    context.out.integer(command.arity.into());
    context.out.array(1);
    context.out.simple(flag);
    for _ in 0..3 {
        context.out.integer(0);
    }
}

/// Keys that are there, with those of the commands before in the same batch.
fn keys(context: &Context<'_>) -> i64 {
    (context.server.keys.load(Relaxed) + context.keys).max(0)
}

pub fn size<K: Keyspace>(context: &mut Context<'_>, _: &K, _: Args<'_>) -> Done {
    let keys = keys(context);
    context.out.integer(keys);
    Ok(())
}

pub fn flush<K: Keyspace>(context: &mut Context<'_>, data: &mut K, args: Args<'_>) -> Done {
    match args {
        [_] => {}
        [_, word] if is(word, "ASYNC") || is(word, "SYNC") => {}
        _ => return Err(SYNTAX),
    }
    let (keys, now) = (records::count_keys(data), context.now);
    let is_there = |key: &[u8]| records::find(data, now, key).is_some();
    context.server.watched.touch_all(context.touches, is_there);
    data.clear()?;
    context.keys -= keys;
    context.out.ok();
    Ok(())
}

pub fn info<K: Keyspace>(context: &mut Context<'_>, _: &K, args: Args<'_>) -> Done {
    let server = context.server;
    let keys = keys(context);
    let saves = server.saves.status();
    let sections = [
        (
            "server",
            format!(
                "redis_version:7.0.0\r\nserver_name:spandrel-kvserver\r\nserver_version:{}\r\nredis_mode:standalone\r\nos:Linux\r\n\
                 process_id:{}\r\nuptime_in_seconds:{}\r\nio_threads_active:{}\r\n",
                env!("CARGO_PKG_VERSION"),
                std::process::id(),
                server.started.elapsed().as_secs(),
                server.threads
            ),
        ),
        (
            "clients",
            format!(
                "connected_clients:{}\r\nmaxclients:{}\r\n",
                server.clients.load(Relaxed),
                server.most_clients
            ),
        ),
        (
            "persistence",
            format!(
                "loading:0\r\nrdb_bgsave_in_progress:{}\r\nrdb_last_save_time:{}\r\nrdb_last_bgsave_status:{}\r\naof_enabled:1\r\n\
                 state_directory:{}\r\nstate_medium:{}\r\nrefused_writes:{}\r\n",
                u8::from(saves.is_running),
                saves.last,
                if saves.has_failed { "err" } else { "ok" },
                server.directory.display(),
                server.medium,
                server.refused.load(Relaxed)
            ),
        ),
        (
            "stats",
            format!(
                "total_connections_received:{}\r\ntotal_commands_processed:{}\r\nexpired_keys:{}\r\n",
                server.last_client.load(Relaxed),
                server.commands.load(Relaxed),
                server.expired.load(Relaxed)
            ),
        ),
        ("replication", "role:master\r\nconnected_slaves:0\r\n".to_owned()),
        ("keyspace", if keys > 0 { format!("db0:keys={keys}\r\n") } else { String::new() }),
    ];
    let is_all = args.len() == 1
        || args[1..]
            .iter()
            .any(|word| ["all", "default", "everything"].iter().any(|all| is(word, all)));
    let mut text = String::new();
    for (name, lines) in sections {
        if is_all || args[1..].iter().any(|word| is(word, name)) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            let (first, rest) = name.split_at(1);
            text.push_str(&format!("# {}{rest}\r\n{lines}", first.to_ascii_uppercase()));
        }
    }
    context.out.bulk(text.as_bytes());
    Ok(())
}
