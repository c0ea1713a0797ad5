//! Several profiles in one: what would have taken their jobs together the least time.

use super::bands::{self, Band};
use super::profile::{self, Choice};
use super::record::{Record, Sizes};
use super::verdict::{self, Ratio};
use super::{put_together, show};
use spandrel_console::Failure;
use spandrel_console::{files, say};
use spandrel_measure::modes;
use spandrel_policy::profile::MAX_BYTES;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Reads the profiles, writes what follows from all of them, shows it; 0.
pub fn run(inputs: &[PathBuf], out: &Path) -> Result<u8, Failure> {
    files::check(&[("--out", Some(out))], inputs)?;
    let records = inputs.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let merged = merged(&records);
    let bands = bands::of_auto();
    let (choice, gain) = choose(&merged, &bands);
    let result = show::result(&choice, gain);
    let mut about = vec![format!(
        "Merged by spandrel tune {} from {} profiles:",
        env!("CARGO_PKG_VERSION"),
        inputs.len()
    )];
    about.extend(inputs.iter().map(|path| format!("  {}", show::plain(&path.to_string_lossy()))));
    about.push(format!("For the time that their jobs took: {result}"));
    let text = choice.text(&about) + &merged.text();
    if text.len() > MAX_BYTES {
        return Err(Failure::refused(format!(
            "--merge: together they make a profile of more than {MAX_BYTES} bytes; merge fewer, or \
             name them by shorter paths"
        )));
    }
    profile::write(out, &text)?;
    say::out(show::merged(&merged, &bands))?;
    say::out(show::verdict(
        &format!("By what each says, and not measured together: {result}"),
        out,
    ))?;
    Ok(0)
}

/// What a profile is from.
fn read(path: &Path) -> Result<Record, Failure> {
    let refuse = |why: String| Failure::refused(format!("--merge: {}: {why}", path.display()));
    // As the library reads it, which names lines.
    modes::check_profile(path)
        .map_err(|failure| Failure::refused(failure.message.replacen("--profile", "--merge", 1)))?;
    let bytes = files::read(path, MAX_BYTES).map_err(|why| refuse(why.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| refuse("this is no text".into()))?;
    let record = Record::read(&text).map_err(|(line, why)| {
        refuse(line.map_or(why.clone(), |line| format!("line {line}: {why}")))
    })?;
    let record = record.ok_or_else(|| {
        refuse("it does not say what it is from; merge what `spandrel tune` has written".into())
    })?;
    let known: BTreeSet<String> = bands::of_auto().iter().map(Band::name).collect();
    if let Some(name) = record.sizes.keys().find(|name| !known.contains(*name)) {
        return Err(refuse(format!(
            "there is no range of sizes '{name}' here; run `spandrel tune` for its job again"
        )));
    }
    let is_time = |time: f64| time.is_finite() && time > 0.0;
    let ratios = record.sizes.values().flat_map(|sizes| sizes.tried.values());
    let mut ratios = ratios.chain(record.modes.values());
    if !is_time(record.cpu_ms) || !ratios.all(|ratio| is_time(ratio.median) && is_time(ratio.most))
    {
        let why = "times are numbers above 0; run `spandrel tune` for its job again";
        return Err(refuse(why.into()));
    }
    Ok(record)
}

/// The records as one: jobs count by the time that they take. What was tried for some only counts where
/// it did not matter for the others.
fn merged(records: &[Record]) -> Record {
    let names = |of: &dyn Fn(&Record) -> Vec<&String>| -> BTreeSet<String> {
        records.iter().flat_map(of).cloned().collect()
    };
    let modes = names(&|record| record.modes.keys().collect());
    let sizes = names(&|record| record.sizes.keys().collect());
    let modes = modes.into_iter().filter_map(|mode| {
        let ratio = mean(records, |record| record.modes.get(&mode).copied())?;
        Some((mode, ratio))
    });
    let sizes = sizes.into_iter().map(|name| {
        let merged = merged_sizes(records, &name);
        (name, merged)
    });
    let lists = |of: fn(&Record) -> &Vec<String>| -> Vec<String> {
        names(&|record| of(record).iter().collect()).into_iter().collect()
    };
    Record {
        machines: lists(|record| &record.machines),
        experiments: lists(|record| &record.experiments),
        cpu_ms: records.iter().map(|record| record.cpu_ms).sum(),
        modes: modes.collect(),
        sizes: sizes.collect(),
    }
}

fn merged_sizes(records: &[Record], name: &str) -> Sizes {
    let all = || records.iter().filter_map(|record| record.sizes.get(name));
    let allocators: BTreeSet<&String> = all().flat_map(|sizes| sizes.tried.keys()).collect();
    let ratio = |allocator: &String, record: &Record| match record.sizes.get(name) {
        Some(sizes) if !sizes.tried.is_empty() => sizes.tried.get(allocator).copied(),
        // The allocator that serves the band.
        _ => Some(Ratio { median: 1.0, most: 1.0 }),
    };
    let tried: BTreeMap<String, Ratio> = allocators
        .into_iter()
        .filter_map(|allocator| {
            Some((allocator.clone(), mean(records, |record| ratio(allocator, record))?))
        })
        .collect();
    Sizes {
        requests: all().fold(0, |sum, sizes| sum.saturating_add(sizes.requests)),
        bytes: all().fold(0, |sum, sizes| sum.saturating_add(sizes.bytes)),
        tried,
    }
}

/// The mean of the jobs' ratios by their times; `None`: one of them has none.
fn mean(records: &[Record], ratio: impl Fn(&Record) -> Option<Ratio>) -> Option<Ratio> {
    let ratios = records.iter().map(|record| Some((record.cpu_ms, ratio(record)?)));
    let ratios: Vec<(f64, Ratio)> = ratios.collect::<Option<_>>()?;
    let whole: f64 = ratios.iter().map(|(time, _)| time).sum();
    let mean = |of: fn(&Ratio) -> f64| {
        ratios.iter().map(|(time, ratio)| time * of(ratio)).sum::<f64>() / whole
    };
    Some(Ratio { median: mean(|ratio| ratio.median), most: mean(|ratio| ratio.most) })
}

/// The best of each band together, or a mode for all if that promises more, or the default; and how
/// what was chosen compares with that.
fn choose(record: &Record, bands: &[Band]) -> (Choice, Option<Ratio>) {
    let trials = record.trials(bands);
    let together = put_together(bands, &trials).map(|choice| {
        let product = (0..bands.len()).fold(Ratio { median: 1.0, most: 1.0 }, |product, at| {
            let of_band = trials.iter().filter(|trial| trial.band == at);
            let ways: Vec<_> = of_band.map(|trial| ((), trial.ratio)).collect();
            verdict::best(&ways).map_or(product, |(_, ratio)| Ratio {
                median: product.median * ratio.median,
                most: product.most * ratio.most,
            })
        });
        (choice, Some(product))
    });
    let of_mode = |(name, ratio): (&String, &Ratio)| (Choice::Mode(name.clone()), Some(*ratio));
    let ways: Vec<_> = together.into_iter().chain(record.modes.iter().map(of_mode)).collect();
    match verdict::best(&ways) {
        Some((choice, ratio)) => (choice.clone(), Some(ratio)),
        None => (Choice::Mode(super::DEFAULT.into()), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(median: f64) -> Ratio {
        Ratio { median, most: median + 0.01 }
    }

    fn job(cpu_ms: f64, band: &str, tried: &[(&str, f64)]) -> Record {
        let tried = tried.iter().map(|(name, median)| (name.to_string(), ratio(*median)));
        let sizes = Sizes { requests: 10, bytes: 100, tried: tried.collect() };
        Record {
            machines: vec!["m".into()],
            experiments: Vec::new(),
            cpu_ms,
            modes: [("native".to_string(), ratio(1.0))].into(),
            sizes: [(band.to_string(), sizes)].into(),
        }
    }

    fn mode(records: &[Record]) -> String {
        choose(&merged(records), &bands::of_auto()).0.mode()
    }

    #[test]
    fn jobs_count_by_their_time() {
        let wins = job(1000.0, "0-256B", &[("jemalloc", 0.9)]);
        let loses = |cpu_ms| job(cpu_ms, "0-256B", &[("jemalloc", 1.2)]);
        assert!(mode(&[wins.clone(), loses(100.0)]).starts_with("template=0-256B:jemalloc,"));
        assert_eq!(mode(&[wins, loses(1000.0)]), "auto");
    }

    #[test]
    fn what_does_not_matter_for_the_others_is_taken() {
        let one = job(100.0, "0-256B", &[("jemalloc", 0.8)]);
        let two = job(100.0, "4KiB-32KiB", &[("sys", 0.8)]);
        let expected = "template=0-256B:jemalloc,256B-4KiB:native,4KiB-32KiB:sys,";
        assert!(mode(&[one.clone(), two]).starts_with(expected));
        // It matters, and no trial has it: the answer is unknown.
        let three = job(100.0, "0-256B", &[("sys", 1.1)]);
        assert_eq!(mode(&[one, three]), "auto");
    }

    #[test]
    fn a_mode_for_all_may_promise_more() {
        let mut one = job(100.0, "0-256B", &[("jemalloc", 0.9)]);
        one.modes.insert("mimalloc".into(), ratio(0.7));
        assert_eq!(mode(std::slice::from_ref(&one)), "mimalloc");
        // The other was not tried on it.
        let two = job(100.0, "0-256B", &[("jemalloc", 0.9)]);
        assert!(mode(&[one, two]).starts_with("template=0-256B:jemalloc"));
    }

    #[test]
    fn merging_in_steps_is_merging_at_once() {
        let one = job(100.0, "0-256B", &[("jemalloc", 0.8), ("sys", 1.2)]);
        let two = job(300.0, "0-256B", &[("jemalloc", 1.1)]);
        let three = job(50.0, "1MiB-", &[("sys", 0.5)]);
        let at_once = merged(&[one.clone(), two.clone(), three.clone()]);
        let in_steps = merged(&[merged(&[three, one]), two]);
        assert_eq!(
            at_once.sizes.keys().collect::<Vec<_>>(),
            in_steps.sizes.keys().collect::<Vec<_>>()
        );
        for (name, sizes) in &at_once.sizes {
            let other = &in_steps.sizes[name];
            assert_eq!((sizes.requests, sizes.bytes), (other.requests, other.bytes));
            assert_eq!(sizes.tried.len(), other.tried.len());
            for (name, ratio) in &sizes.tried {
                assert!((ratio.median - other.tried[name].median).abs() < 1e-9);
            }
        }
        assert_eq!(at_once.cpu_ms, in_steps.cpu_ms);
    }
}
