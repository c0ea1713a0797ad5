//! `stores NAME --job …`: a job of the suite `durable` on redb or fjall. See `spandrel-stores`.

mod fjall_store;
mod redb_store;

use serde_json::Value;
use spandrel_stores::Open;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (name, rest) = words.split_first().map_or(("", &[][..]), |(name, rest)| (name, rest));
    let open: Open<'_> = match name {
        "redb" => &|directory, _| Ok(Box::new(redb_store::Redb::open(directory)?)),
        "fjall" => &|directory, _| Ok(Box::new(fjall_store::Fjall::open(directory)?)),
        _ => {
            eprintln!("stores: which one? There are redb and fjall");
            return ExitCode::from(2);
        }
    };
    match spandrel_stores::run(rest, open) {
        Ok(report) => {
            println!("{}", Value::Object(report));
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("stores: {name}: {why}");
            ExitCode::from(2)
        }
    }
}
