//! `spandrel heap info`: what a heap is, and what it holds.

use super::args::InfoArgs;
use super::failed::{failed, is_durable};
use super::shell::command;
use super::{BLOCK_BYTES, bytes_of, copied, words};
use crate::progress::Progress;
use serde_json::{Value, json};
use spandrel_console::Failure;
use spandrel_console::say;
use spandrel_console::terminal::table;
use spandrel_pheap::{Choice, ClassUse, ROOT_COUNT, Survey, check_watched};
use spandrel_report::numbers::{bytes, count, counted};
use std::path::Path;

/// Shows a heap.
pub fn run(args: &InfoArgs) -> Result<u8, Failure> {
    let path = &args.file;
    let progress = Progress::share("looking at all of it", bytes_of(path));
    let watch = progress.watcher();
    let medium = copied(path, &args.wait)?;
    let survey = check_watched(&medium, &[], is_durable(path), &mut |_| (), Some(&watch));
    let survey = survey.map_err(|why| failed(path, why))?;
    drop(progress);
    match args.json {
        true => say::out(as_json(path, &survey))?,
        false => say::out(text(path, &survey))?,
    }
    Ok(0)
}

fn text(path: &Path, survey: &Survey) -> String {
    let (identity, record) = (&survey.identity, &survey.record);
    let mut text = format!(
        "{}: {}, {}",
        path.display(),
        bytes(record.bytes as f64),
        words::state(record.state)
    );
    let mut say = |line: String| {
        text.push('\n');
        text += &line;
    };
    say(format!(
        "UUID {}, version {} of the format; opened {}",
        words::uuid(identity),
        survey.version,
        counted(record.generation, "time", "times")
    ));
    let layout = words::layout(record.layout);
    say(format!(
        "layout of types: {}; address: {}",
        layout.as_deref().unwrap_or("any"),
        if identity.base == 0 { "any".into() } else { format!("{:#x}", identity.base) }
    ));
    let survival = words::survival(words::medium_of(path, identity)).text();
    let chosen = match identity.medium {
        Choice::Auto => "",
        Choice::Mapped => "; made to be mapped",
        Choice::Logged => "; made to have a log",
    };
    say(format!("on {survival}{chosen}"));
    say(format!(
        "blocks of {}: {}, {} free; {} in {}",
        bytes(BLOCK_BYTES as f64),
        count(survey.blocks),
        count(survey.free_blocks),
        counted(survey.large_objects, "large object", "large objects"),
        counted(survey.large_blocks, "block", "blocks"),
    ));
    say(format!("roots: {} of {}", count(survey.roots), ROOT_COUNT));
    say(objects(path, survey));
    if used(survey).next().is_some() {
        say(String::new());
        say(classes(survey));
    }
    text
}

fn objects(path: &Path, survey: &Survey) -> String {
    if survey.damaged > 0 {
        return format!(
            "objects: not counted, as it is damaged in {}; {} lists them",
            counted(survey.damaged, "place", "places"),
            command("check", path)
        );
    }
    let lost = match survey.lost {
        0 => String::new(),
        lost => {
            format!("; nothing leads to {} more ({})", count(lost), bytes(survey.lost_bytes as f64))
        }
    };
    let (live, size) = (survey.live, bytes(survey.live_bytes as f64));
    format!("objects: {} can be reached ({size}){lost}", count(live))
}

fn used(survey: &Survey) -> impl Iterator<Item = &ClassUse> {
    survey.classes.iter().filter(|class| class.blocks > 0)
}

fn classes(survey: &Survey) -> String {
    let header = ["objects of", "blocks", "can be reached", "fill"];
    let mut table = table::new(&header.map(String::from));
    for class in used(survey) {
        let (live, fill) = match survey.damaged {
            0 => (count(class.live), table::share(live_bytes(class), class.blocks * BLOCK_BYTES)),
            _ => (table::NOTHING.into(), table::NOTHING.into()),
        };
        let size = format!("{} B", count(class.bytes as u64));
        table::add(&mut table, false, vec![size, count(class.blocks), live, fill]);
    }
    table.to_string()
}

fn live_bytes(class: &ClassUse) -> u64 {
    class.live * class.bytes as u64
}

fn as_json(path: &Path, survey: &Survey) -> Value {
    // What was not looked at is not known.
    let known = |number: u64| (survey.damaged == 0).then_some(number);
    let class = |class: &ClassUse| json!({"bytes": class.bytes, "blocks": class.blocks, "live": known(class.live)});
    json!({
        "format": 1,
        "heap": path.display().to_string(),
        "version": survey.version,
        "record": words::record(&survey.identity, &survey.record),
        "medium": words::survival(words::medium_of(path, &survey.identity)).json(),
        "block_bytes": BLOCK_BYTES,
        "blocks": survey.blocks,
        "free_blocks": survey.free_blocks,
        "large_objects": survey.large_objects,
        "large_blocks": survey.large_blocks,
        "classes": used(survey).map(class).collect::<Vec<_>>(),
        "roots": survey.roots,
        "live": known(survey.live),
        "live_bytes": known(survey.live_bytes),
        "lost": known(survey.lost),
        "lost_bytes": known(survey.lost_bytes),
        "damaged": survey.damaged,
    })
}
