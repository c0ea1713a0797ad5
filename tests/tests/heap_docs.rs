//! The programs that the documentation of the heap shows are compiled and run as they stand there.

use std::path::{Path, PathBuf};

use spandrel_tests::heap::{Program, built, compile};
use spandrel_tests::snippets::{Snippet, snippets};
use spandrel_tests::subject::workspace;
use spandrel_tests::{Job, installed};

/// A block of code that is run.
struct Shown(Snippet);

impl Shown {
    /// A file with the text, in which heaps in memory lie in the folder instead.
    fn written(&self, folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(name);
        let there = format!("\"{}/", folder.display());
        std::fs::write(&path, self.0.text.replace("\"/dev/shm/", &there)).expect("write");
        path
    }

    /// What it says when it is run once more is a greater number: the heap was there again.
    fn counts(&self, run: impl Fn() -> Job) {
        let numbers = [run(), run(), run()].map(|job| {
            let said = job.run().expect_ok().out();
            let number = said.trim().parse::<i64>();
            number.unwrap_or_else(|why| panic!("{}: {said:?}: {why}", self.0.place))
        });
        let [first, second, third] = numbers;
        assert!(first < second && second < third, "{}: {numbers:?}", self.0.place);
    }

    fn runs(&self) {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a temporary folder");
        let (c, cpp) = ("snippet.c", "snippet.cc");
        match self.0.language.as_str() {
            "c" | "cpp" if self.0.text.contains("int main(") => {
                let name = if self.0.language == "c" { c } else { cpp };
                let program = Program::with(&self.written(folder.path(), name), &["-pedantic"]);
                self.counts(|| Job::new(program.path()).dir(folder.path()));
            }
            // A part of a program.
            "c" => {
                let text = format!("#include <spandrel_heap.h>\n{}", self.0.text);
                let part = folder.path().join(c);
                std::fs::write(&part, text).expect("write");
                let part = part.display().to_string();
                compile("cc", &["-std=c11", "-pedantic", "-fsyntax-only", "-Wno-unused", &part]);
            }
            "python" => {
                let script = self.written(folder.path(), "snippet.py");
                self.counts(|| {
                    Job::new(installed("python3"))
                        .arg(&script)
                        .dir(folder.path())
                        .env("SPANDREL_HEAP_LIB", built("libspandrel_heap.so"))
                        .env("PYTHONPATH", workspace().join("python"))
                        .env("PYTHONDONTWRITEBYTECODE", "1")
                });
            }
            "sh" | "text" => {}
            language => panic!("{}: no test knows how {language} is run", self.0.place),
        }
    }
}

fn all_run(document: &str, languages: &[&str]) {
    let snippets = snippets(document);
    for language in languages {
        let is_there = snippets.iter().any(|snippet| snippet.language == *language);
        assert!(is_there, "{document} has no {language}");
    }
    snippets.into_iter().for_each(|snippet| Shown(snippet).runs());
}

#[test]
fn programs_of_the_document_run_as_they_stand() {
    all_run("docs/recoverable-heap-c.md", &["c", "cpp", "python"]);
}

#[test]
fn programs_of_the_python_module_run_as_they_stand() {
    all_run("python/README.md", &["python"]);
}
