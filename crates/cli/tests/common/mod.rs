//! A stand-in for the library: it answers the handshake and writes statistics,
//! and leaves allocation alone. So the command is tested on its own.

#![allow(dead_code)] // Each test program uses a part of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

const STAND_IN: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* By this name the command knows the library. */
unsigned long spandrel_live[4];

__attribute__((constructor)) static void loaded(void)
{
    const char *mode = getenv("SPANDREL_MODE");
    const char *where = getenv("SPANDREL_HANDSHAKE");
    struct stat pipe;
    int fd;
    unsigned long inode;
    if (getenv("STAND_IN_MODE"))
        mode = getenv("STAND_IN_MODE");
    if (mode == NULL)
        mode = "auto";
    if (getenv("SPANDREL_VERBOSE"))
        fprintf(stderr, "spandrel: 0.1.0 loaded into x (pid 1): mode %s, allocators sys jemalloc mimalloc mmap\n", mode);
    if (where && sscanf(where, "%d:%lu", &fd, &inode) == 2 && fstat(fd, &pipe) == 0 && pipe.st_ino == inode) {
        dprintf(fd, "spandrel 0.1.0 mode %s\n", mode);
        close(fd);
    }
    unsetenv("SPANDREL_HANDSHAKE");
}

__attribute__((destructor)) static void ends(void)
{
    const char *pattern = getenv("SPANDREL_STATS");
    const char *pid = pattern ? strstr(pattern, "%p") : NULL;
    char path[4096];
    FILE *file;
    if (pid == NULL)
        return;
    snprintf(path, sizeof path, "%.*s%d%s", (int)(pid - pattern), pattern, (int)getpid(), pid + 2);
    file = fopen(path, "w");
    if (file == NULL)
        return;
    fprintf(file, "{\"format\":1,\"mode\":\"auto\",\"program\":\"x\",\"requests\":"
                  "[{\"backend\":\"mmap\",\"from\":1048576,\"to\":2097151,\"allocs\":21,\"alloc_bytes\":22020096}]}");
    fclose(file);
}
"#;

/// A place with the stand-in and whatever else a test needs.
pub struct Place {
    pub directory: TempDir,
    pub library: PathBuf,
}

impl Place {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let library = directory.path().join("libspandrel.so");
        compile(directory.path(), STAND_IN, &["-shared", "-fPIC"], &library);
        Self { directory, library }
    }

    /// `spandrel run ARGS…` on the stand-in.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = spandrel();
        command.env_remove("BRUG_ALLOC").env_remove("LD_PRELOAD");
        command.arg("run").args(args).env("SPANDREL_LIB", &self.library);
        command
    }

    pub fn run(&self, args: &[&str]) -> Done {
        self.command(args).output().unwrap().into()
    }

    /// Compiles a C program.
    pub fn program(&self, name: &str, source: &str, flags: &[&str]) -> String {
        let path = self.directory.path().join(name);
        compile(self.directory.path(), source, flags, &path);
        path.to_str().unwrap().to_string()
    }
}

/// The command, without settings of the library from outside.
pub fn spandrel() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
    let ours = std::env::vars_os().map(|(name, _)| name);
    for name in ours.filter(|name| name.as_encoded_bytes().starts_with(b"SPANDREL_")) {
        command.env_remove(name);
    }
    command
}

fn compile(directory: &Path, source: &str, flags: &[&str], into: &Path) {
    let file = directory.join("source.c");
    std::fs::write(&file, source).unwrap();
    let done = Command::new("cc").args(flags).arg("-o").arg(into).arg(&file).output().unwrap();
    assert!(done.status.success(), "cc: {}", String::from_utf8_lossy(&done.stderr));
}

/// How a command ended.
#[derive(Debug)]
pub struct Done {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}
