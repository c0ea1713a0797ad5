//! `spandrel heap load`: a heap made of what `dump` wrote of one.

use super::args::LoadArgs;
use super::dump::FORMAT;
use super::failed::failed;
use super::{directory_of, image, log_of, refuse_existing};
use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use spandrel_console::Failure;
use spandrel_console::say;
use spandrel_console::shutdown::{Kind, Scratch};
use spandrel_pheap::{Choice, Error, LIMIT, Options, Restoring};
use spandrel_report::numbers::{bytes, counted};
use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read, stdin};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Makes a heap of a dump.
pub fn run(args: &LoadArgs) -> Result<u8, Failure> {
    let path = &args.file;
    refuse_existing(path)?;
    let from = args.from.as_deref().filter(|from| *from != Path::new("-"));
    let source: Box<dyn Read> = match from {
        None => Box::new(stdin()),
        Some(from) => {
            let file = File::open(from).map_err(|why| unreadable(Some(from), &why))?;
            Box::new(file)
        }
    };
    // The heap appears whole or not at all: it is made in a directory of its own, with its log, and renamed in the end.
    let made = Scratch::directory_in(Kind::Load, directory_of(path));
    let made = made.map_err(|why| spandrel_console::files::not_written(path, &why))?;
    let mut loading = Loading::new(made.path().join("heap"));
    let mut input = serde_json::Deserializer::from_reader(BufReader::new(source));
    let read = loading.deserialize(&mut input).and_then(|()| input.end());
    if let Some(why) = loading.refused.take() {
        return Err(refused(path, from, why));
    }
    read.map_err(|why| unreadable(from, &why))?;
    let (objects, size) = loading.finish().map_err(|why| refused(path, from, why))?;
    let moved = image::rename(&loading.path, path);
    moved.map_err(|why| spandrel_console::files::not_written(path, &why))?;
    say::out(format_args!(
        "{}: {}, with {}",
        path.display(),
        bytes(size as f64),
        counted(objects, "object", "objects")
    ))?;
    Ok(0)
}

fn name_of(from: Option<&Path>) -> String {
    from.map_or_else(|| "standard input".into(), |from| from.display().to_string())
}

fn unreadable(from: Option<&Path>, why: &dyn fmt::Display) -> Failure {
    Failure::refused(format!(
        "{}: {why}; name a file that 'spandrel heap dump' wrote",
        name_of(from)
    ))
}

/// Why a dump, or the heap that is made of it, cannot be used.
enum Refused {
    Heap(Error),
    Dump(String),
}

fn refused(path: &Path, from: Option<&Path>, why: Refused) -> Failure {
    match why {
        Refused::Heap(Error::Damaged { at: 0, what }) => {
            unreadable(from, &format_args!("it has {what}"))
        }
        Refused::Heap(Error::Damaged { at, what }) => {
            unreadable(from, &format_args!("it has {what}, at {at:#x}"))
        }
        Refused::Heap(Error::Size(size)) => {
            unreadable(from, &format_args!("{size} bytes are less than any heap has"))
        }
        Refused::Heap(why @ (Error::RootIndex(_) | Error::RootName)) => unreadable(from, &why),
        Refused::Heap(why) => failed(path, why),
        Refused::Dump(why) => unreadable(from, &why),
    }
}

#[derive(Deserialize)]
struct Record {
    medium: String,
    base: Option<String>,
    bytes: usize,
    layout: Option<String>,
}

#[derive(Deserialize)]
struct Root {
    index: usize,
    name: Option<String>,
    offset: Option<usize>,
    layout: Option<String>,
}

#[derive(Deserialize)]
struct Object {
    at: usize,
    bytes: usize,
    /// Free places that words of the object lead to.
    #[serde(default)]
    stale: Vec<usize>,
    data: Option<String>,
}

/// A heap that is being made while its dump is read.
struct Loading {
    path: PathBuf,
    restoring: Option<Restoring<'static>>,
    objects: u64,
    /// Why no more is read.
    refused: Option<Refused>,
}

impl Loading {
    fn new(path: PathBuf) -> Self {
        Self { path, restoring: None, objects: 0, refused: None }
    }

    /// Keeps an error of the heap or of the dump, which ends the reading.
    fn note<T, E: serde::de::Error>(&mut self, outcome: Result<T, Refused>) -> Result<T, E> {
        outcome.map_err(|why| {
            self.refused = Some(why);
            E::custom("refused")
        })
    }

    fn begin(&mut self, record: &Record) -> Result<(), Refused> {
        let medium = match record.medium.as_str() {
            "auto" => Choice::Auto,
            "mapped" => Choice::Mapped,
            "logged" => Choice::Logged,
            other => return Err(Refused::Dump(format!("'{other}' is no medium"))),
        };
        let layout = record.layout.as_deref().map_or(Ok(0), number)?;
        let base = record.base.as_deref().map_or(Ok(0), number)?;
        let mut options = Options::new().size(record.bytes).medium(medium).layout(layout);
        if record.bytes > LIMIT {
            options = options.limit(record.bytes);
        }
        let restoring = options.restore(self.path.as_os_str().as_bytes(), base);
        self.restoring = Some(restoring.map_err(Refused::Heap)?);
        Ok(())
    }

    fn restoring(&mut self) -> Result<&mut Restoring<'static>, Refused> {
        let missing = || Refused::Dump("the record comes before roots and objects".into());
        self.restoring.as_mut().ok_or_else(missing)
    }

    fn root(&mut self, root: &Root) -> Result<(), Refused> {
        let layout = root.layout.as_deref().map_or(Ok(0), number)?;
        let name = root.name.as_deref().map(|name| (name, layout));
        self.restoring()?.root(root.index, name, root.offset).map_err(Refused::Heap)
    }

    fn object(&mut self, object: &Object) -> Result<(), Refused> {
        let Some(data) = &object.data else {
            let why = "it does not have what objects hold: dump the heap without --outline";
            return Err(Refused::Dump(why.into()));
        };
        let held =
            held(data).ok_or_else(|| Refused::Dump("data are pairs of hex digits".into()))?;
        self.objects += 1;
        let restoring = self.restoring()?;
        let put = restoring.object(object.at, object.bytes, &held);
        let put = put.and_then(|()| object.stale.iter().try_for_each(|at| restoring.stale(*at)));
        put.map_err(Refused::Heap)
    }

    /// Closes the heap. Returns the number of its objects, and its bytes.
    fn finish(&mut self) -> Result<(u64, usize), Refused> {
        self.restoring()?;
        let Some(restoring) = self.restoring.take() else { return Ok((0, 0)) };
        let (heap, _) = restoring.finish().map_err(Refused::Heap)?;
        let size = heap.bytes();
        heap.close().map_err(Refused::Heap)?;
        let _ = std::fs::remove_file(log_of(&self.path));
        Ok((self.objects, size))
    }
}

/// Parses a number such as `0x2a`.
fn number(text: &str) -> Result<u64, Refused> {
    let digits = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    digits.ok_or_else(|| Refused::Dump(format!("'{text}' is no number such as 0x2a")))
}

/// Parses pairs of hex digits.
fn held(data: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = data.as_bytes().as_chunks::<2>();
    rest.is_empty().then_some(())?;
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

impl<'de> DeserializeSeed<'de> for &mut Loading {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Loading {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what 'spandrel heap dump' writes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "format" => {
                    let format: u64 = map.next_value()?;
                    if format != FORMAT {
                        let why = format!("format {format}, where this command reads {FORMAT}");
                        return self.note(Err(Refused::Dump(why)));
                    }
                }
                "record" => {
                    let record = map.next_value()?;
                    let begun = self.begin(&record);
                    self.note(begun)?;
                }
                "roots" => {
                    for root in map.next_value::<Vec<Root>>()? {
                        let set = self.root(&root);
                        self.note(set)?;
                    }
                }
                "objects" => map.next_value_seed(Objects(self))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        match self.restoring {
            Some(_) => Ok(()),
            None => Err(A::Error::missing_field("record")),
        }
    }
}

/// The list of objects, which is read object by object: a heap may be larger than memory.
struct Objects<'a>(&'a mut Loading);

impl<'de> DeserializeSeed<'de> for Objects<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Objects<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(object) = list.next_element()? {
            let put = self.0.object(&object);
            self.0.note(put)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_numbers() {
        assert_eq!(held("00ff7A"), Some(vec![0, 255, 122]));
        assert_eq!((held(""), held("0"), held("0g")), (Some(vec![]), None, None));
        assert!(matches!(number("0x2a"), Ok(42)) && number("42").is_err() && number("0x").is_err());
    }
}
