//! The programs that the documentation of the heap shows are compiled and run as they stand there.

use std::path::{Path, PathBuf};

use spandrel_tests::heap::{Program, built, compile};
use spandrel_tests::subject::workspace;
use spandrel_tests::{Job, installed};

/// A block of code of a document.
struct Snippet {
    language: String,
    text: String,
    /// Where it begins: the document and the line.
    place: String,
}

fn snippets(document: &str) -> Vec<Snippet> {
    let text = std::fs::read_to_string(workspace().join(document)).expect("the document");
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(language) = line.strip_prefix("```").filter(|language| !language.is_empty())
        else {
            continue;
        };
        let block = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
        let text = block.flat_map(|line| [line, "\n"]).collect();
        let place = format!("{document}:{}", number + 1);
        found.push(Snippet { language: language.to_owned(), text, place });
    }
    found
}

impl Snippet {
    /// A file with the text, in which heaps in memory lie in the folder instead.
    fn written(&self, folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(name);
        let there = format!("\"{}/", folder.display());
        std::fs::write(&path, self.text.replace("\"/dev/shm/", &there)).expect("write");
        path
    }

    /// What it says when it is run once more is a greater number: the heap was there again.
    fn counts(&self, run: impl Fn() -> Job) {
        let numbers = [run(), run(), run()].map(|job| {
            let said = job.run().expect_ok().out();
            let number = said.trim().parse::<i64>();
            number.unwrap_or_else(|why| panic!("{}: {said:?}: {why}", self.place))
        });
        let [first, second, third] = numbers;
        assert!(first < second && second < third, "{}: {numbers:?}", self.place);
    }

    fn runs(&self) {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a temporary folder");
        let (c, cpp) = ("snippet.c", "snippet.cc");
        match self.language.as_str() {
            "c" | "cpp" if self.text.contains("int main(") => {
                let name = if self.language == "c" { c } else { cpp };
                let program = Program::with(&self.written(folder.path(), name), &["-pedantic"]);
                self.counts(|| Job::new(program.path()).dir(folder.path()));
            }
            // A part of a program.
            "c" => {
                let text = format!("#include <spandrel_heap.h>\n{}", self.text);
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
            language => panic!("{}: no test knows how {language} is run", self.place),
        }
    }
}

fn all_run(document: &str, languages: &[&str]) {
    let snippets = snippets(document);
    for language in languages {
        let is_there = snippets.iter().any(|snippet| snippet.language == *language);
        assert!(is_there, "{document} has no {language}");
    }
    snippets.iter().for_each(Snippet::runs);
}

#[test]
fn programs_of_the_document_run_as_they_stand() {
    all_run("docs/recoverable-heap-c.md", &["c", "cpp", "python"]);
}

#[test]
fn programs_of_the_python_module_run_as_they_stand() {
    all_run("python/README.md", &["python"]);
}
