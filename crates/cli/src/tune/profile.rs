//! The profile that is written: what was learnt, and from what, for people and for the library.

use super::bands::{self, Band};
use spandrel_console::Failure;
use spandrel_console::files;
use spandrel_console::shutdown::{Kind, Scratch};
use spandrel_policy::profile;
use std::io::Write;
use std::path::Path;

/// How the library shall allocate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Choice {
    /// A mode by its name.
    Mode(String),
    /// By size.
    Bands(Vec<Band>),
}

impl Choice {
    /// The mode that it is.
    pub fn mode(&self) -> String {
        match self {
            Self::Mode(name) => name.clone(),
            Self::Bands(bands) => bands::mode(bands),
        }
    }

    /// The text of a profile that says so, `about` in comments before it.
    pub fn text(&self, about: &[String]) -> String {
        let mut text: String = about.iter().map(|line| format!("# {line}\n")).collect();
        text += &format!("version = {}\n", profile::VERSION);
        match self {
            Self::Mode(name) => text += &format!("mode = \"{name}\"\n"),
            Self::Bands(bands) => {
                text += "mode = \"template\"\n\n[template]\n";
                for range in bands::merged(bands) {
                    text += &format!("\"{}\" = \"{}\"\n", range.name(), range.allocator.name());
                }
            }
        }
        text
    }
}

/// Writes a file whole or not at all; `-` is standard output.
pub fn write(path: &Path, text: &str) -> Result<(), Failure> {
    if files::is_output(path) {
        return files::write(path, text);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let written = Scratch::file_in(Kind::Profile, folder).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path)
    });
    written.map(|_| ()).map_err(|why| files::not_written(path, &why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_pages::AllocatorId;
    use spandrel_policy::parse_mode;

    #[test]
    fn what_is_written_is_what_the_library_reads() {
        let mut bands = bands::of_auto();
        bands[1].allocator = AllocatorId::Jemalloc;
        for choice in
            [Choice::Mode("native".into()), Choice::Bands(bands::of_auto()), Choice::Bands(bands)]
        {
            let text = choice.text(&["learnt # from \"x\"".into(), String::new()]);
            let read =
                profile::parse(text.as_bytes()).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(read.mode, parse_mode(&choice.mode()).unwrap(), "{text}");
        }
    }

    #[test]
    fn an_old_profile_is_replaced_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("p");
        std::fs::write(&path, "old").unwrap();
        write(&path, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(
            std::fs::read_dir(directory.path()).unwrap().count(),
            1,
            "nothing is left beside it"
        );
        let failure = write(&directory.path().join("none/p"), "x").unwrap_err();
        assert!(failure.code == 2 && failure.message.contains("none/p"));
    }
}
