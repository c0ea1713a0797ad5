//! `spandrel heap roots`: where all that a heap keeps hangs.

use super::args::RootsArgs;
use super::failed::failed;
use super::{bytes_of, copied, words};
use crate::progress::Progress;
use serde::Serialize;
use serde_json::json;
use spandrel_console::Failure;
use spandrel_console::say;
use spandrel_console::terminal::table;
use spandrel_pheap::{Heap, Medium, PPtr, ROOT_COUNT};
use spandrel_report::numbers::bytes;
use std::path::Path;

/// A root that leads somewhere, or has a name.
#[derive(Serialize)]
pub struct Root {
    pub index: usize,
    pub name: Option<String>,
    /// Where it leads; `None`: nowhere.
    pub offset: Option<usize>,
    /// That of its type, if it has one.
    pub layout: Option<String>,
    /// Of the object that begins there; `None`: none does.
    pub bytes: Option<usize>,
}

/// Lists roots.
pub fn run(args: &RootsArgs) -> Result<u8, Failure> {
    let path = &args.file;
    let progress = Progress::spinner("reading", bytes_of(path));
    let opened = Heap::open(copied(path, &args.wait)?, 0, None);
    let (heap, _) = opened.map_err(|why| failed(path, why))?;
    let roots = all(&heap);
    drop(progress);
    match args.json {
        true => {
            let all = json!({"format": 1, "heap": path.display().to_string(), "roots": roots});
            say::out(all)?;
        }
        false => say::out(text(path, &roots))?,
    }
    Ok(0)
}

/// All roots that are in use.
pub fn all<M: Medium>(heap: &Heap<M>) -> Vec<Root> {
    (0..ROOT_COUNT).filter_map(|index| root(heap, index)).collect()
}

fn root<M: Medium>(heap: &Heap<M>, index: usize) -> Option<Root> {
    let name = heap.root_name(index);
    let pointer = PPtr::<u8>::from_raw(heap.root_word(index).ok()?);
    if name.is_none() && pointer.is_null() {
        return None;
    }
    let object = heap.get_root(index).ok().flatten();
    Some(Root {
        index,
        name: name.map(|name| name.text().to_string()),
        offset: pointer.offset(),
        layout: name.and_then(|name| words::layout(name.layout)),
        bytes: object.and_then(|object| heap.usable_bytes(object).ok()),
    })
}

fn text(path: &Path, roots: &[Root]) -> String {
    if roots.is_empty() {
        return format!("{}: no root is in use", path.display());
    }
    let header = ["root", "name", "offset", "bytes", "layout of its type"];
    let mut table = table::new(&header.map(String::from));
    table::left(&mut table, 1);
    for root in roots {
        let offset = root.offset.map_or_else(|| "nowhere".into(), |at| format!("{at:#x}"));
        let size = match (root.bytes, root.offset) {
            (Some(size), _) => bytes(size as f64),
            (None, Some(_)) => "no object".into(),
            (None, None) => String::new(),
        };
        let cells = vec![
            root.index.to_string(),
            root.name.as_deref().map(words::shown).unwrap_or_default(),
            offset,
            size,
            root.layout.clone().unwrap_or_default(),
        ];
        table::add(&mut table, false, cells);
    }
    table.to_string()
}
