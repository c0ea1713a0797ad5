//! Can the library be loaded into this program?

use super::elf::{self, Elf};
use super::{lookup, secure};
use object::read::ReadCache;
use spandrel_measure::places::own_machine;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// How many interpreters of interpreters are followed.
const SCRIPTS_MAX: usize = 4;
/// How much of a script's first line the kernel reads.
const SCRIPT_LINE_BYTES: usize = 256;

/// Why it cannot.
#[derive(Debug)]
pub struct Obstacle {
    /// The interpreters that lead to it, if the program is a script.
    through: Vec<PathBuf>,
    reason: Reason,
}

/// What stands in the way.
#[derive(Debug)]
enum Reason {
    Static,
    Machine(String),
    Musl(String),
    Secure(String),
    TooDeep,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for interpreter in &self.through {
            write!(f, "it is a script for {}, and ", interpreter.display())?;
        }
        match &self.reason {
            Reason::Static => f.write_str(
                "it is statically linked, and nothing can be loaded into a static program: take a \
                 dynamically linked build of it, or link it with libspandrel.a",
            ),
            Reason::Machine(name) => write!(
                f,
                "it is a program for {name}, and this library is for {}: take a library that was \
                 built for that machine (--lib)",
                elf::machine_name(own_machine(), usize::BITS as u8)
            ),
            Reason::Musl(linker) => write!(
                f,
                "it is linked with musl ({linker}), and this library needs glibc: take a build of \
                 it for glibc"
            ),
            Reason::Secure(why) => write!(
                f,
                "{why}, and in privileged programs LD_PRELOAD is ignored: run it as that user, or \
                 a copy without the privilege"
            ),
            Reason::TooDeep => {
                write!(f, "its interpreters are scripts more than {SCRIPTS_MAX} deep")
            }
        }
    }
}

/// Looks at the file that would be executed, and at its interpreters if it is a
/// script. What cannot be read is left to the kernel to judge.
pub fn inspect(path: &Path, words: &[OsString]) -> Option<Obstacle> {
    let mut through = Vec::new();
    let mut path = path.to_path_buf();
    let fail = |through: &Vec<PathBuf>, reason| Some(Obstacle { through: through.clone(), reason });
    loop {
        let file = File::open(&path).ok()?;
        if let Some(script) = Script::read(&file) {
            if through.len() == SCRIPTS_MAX {
                return fail(&through, Reason::TooDeep);
            }
            path = script.program()?;
            through.push(path.clone());
            continue;
        }
        if let Some(why) = file.metadata().ok().and_then(|data| secure::reason(&path, &data)) {
            return fail(&through, Reason::Secure(why));
        }
        let cache = ReadCache::new(file);
        let elf = elf::read(&cache)?;
        return match obstacle(&elf, &path, words) {
            Some(reason) => fail(&through, reason),
            None => None,
        };
    }
}

fn obstacle(elf: &Elf, path: &Path, words: &[OsString]) -> Option<Reason> {
    if elf.machine != own_machine() || u32::from(elf.bits) != usize::BITS {
        return Some(Reason::Machine(elf::machine_name(elf.machine, elf.bits)));
    }
    match &elf.interpreter {
        Some(linker) if file_name(linker).starts_with("ld-musl") => {
            Some(Reason::Musl(linker.clone()))
        }
        Some(_) => None,
        // The dynamic linker itself, called with a program as its argument.
        None if elf.shared && is_dynamic_linker(path) && !words.is_empty() => None,
        None => Some(Reason::Static),
    }
}

fn is_dynamic_linker(path: &Path) -> bool {
    let real = std::fs::canonicalize(path);
    let name = real.ok().and_then(|real| Some(real.file_name()?.to_string_lossy().into_owned()));
    name.is_some_and(|name| {
        name.starts_with("ld-linux") || name.starts_with("ld-2") || name == "ld.so"
    })
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The first line of a script.
struct Script {
    interpreter: PathBuf,
    argument: OsString,
}

impl Script {
    fn read(file: &File) -> Option<Self> {
        let mut start = [0; SCRIPT_LINE_BYTES];
        let length = file.read_at(&mut start, 0).ok()?;
        Self::parse(&start[..length])
    }

    fn parse(start: &[u8]) -> Option<Self> {
        let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
        let line = line.trim_ascii();
        let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
        let (interpreter, argument) = line.split_at(end);
        Some(Self {
            interpreter: OsStr::from_bytes(interpreter).into(),
            argument: OsStr::from_bytes(argument.trim_ascii()).into(),
        })
    }

    /// The program that will read the script: `env` is looked through.
    fn program(&self) -> Option<PathBuf> {
        if self.interpreter.file_name()? != "env" {
            return Some(self.interpreter.clone());
        }
        let mut words = self.argument.as_bytes().split(|byte| byte.is_ascii_whitespace());
        let name =
            words.find(|word| !word.is_empty() && !word.starts_with(b"-") && !word.contains(&b'='));
        let found = name.and_then(|name| lookup::find(OsStr::from_bytes(name)).ok());
        Some(found.unwrap_or_else(|| self.interpreter.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    fn compile(directory: &Path, name: &str, flags: &[&str]) -> Option<PathBuf> {
        let source = directory.join("hello.c");
        std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let program = directory.join(name);
        let done = Command::new("cc").args(flags).arg("-o").arg(&program).arg(&source).output();
        done.ok()?.status.success().then_some(program)
    }

    fn script(directory: &Path, name: &str, first_line: &str) -> PathBuf {
        let path = directory.join(name);
        std::fs::write(&path, format!("{first_line}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn said(path: &Path) -> String {
        inspect(path, &[]).map_or_else(String::new, |obstacle| obstacle.to_string())
    }

    #[test]
    fn dynamic_static_and_static_pie() {
        let directory = tempfile::tempdir().unwrap();
        let dynamic = compile(directory.path(), "dynamic", &[]).expect("cc works");
        assert_eq!(said(&dynamic), "");
        for (name, flags) in [("static", ["-static"]), ("pie", ["-static-pie"])] {
            if let Some(program) = compile(directory.path(), name, &flags) {
                assert!(said(&program).contains("statically linked"), "{name}");
            }
        }
    }

    #[test]
    fn musl_and_other_machines() {
        let elf = |machine, interpreter: &str| Elf {
            machine,
            bits: usize::BITS as u8,
            shared: true,
            interpreter: Some(interpreter.into()),
        };
        let check = |elf: &Elf| obstacle(elf, Path::new("x"), &[]);
        let own = own_machine();
        assert!(check(&elf(own, "/lib64/ld-linux-x86-64.so.2")).is_none());
        assert!(matches!(check(&elf(own, "/lib/ld-musl-x86_64.so.1")), Some(Reason::Musl(_))));
        assert!(matches!(check(&elf(object::elf::EM_ARM, "/lib/ld.so")), Some(Reason::Machine(_))));
    }

    #[test]
    fn scripts_are_followed() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(said(&script(directory.path(), "sh", "#! /bin/sh -e")), "");
        assert_eq!(said(&script(directory.path(), "env", "#!/usr/bin/env -S sh -e")), "");
        if let Some(program) = compile(directory.path(), "static", &["-static"]) {
            let first = script(directory.path(), "one", &format!("#!{}", program.display()));
            let second = script(directory.path(), "two", &format!("#!{}", first.display()));
            let said = said(&second);
            assert!(said.contains("script for") && said.contains("static"), "{said}");
        }
        let endless = directory.path().join("endless");
        script(directory.path(), "endless", &format!("#!{}", endless.display()));
        assert!(said(&endless).contains("deep"));
    }

    #[test]
    fn the_dynamic_linker_is_a_program_too() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        let linker = PathBuf::from(elf::read(&own[..]).unwrap().interpreter.unwrap());
        assert!(inspect(&linker, &["/bin/true".into()]).is_none());
    }
}
