//! Blocks of code in the project's documents, which tests run as they stand there.

use crate::subject::workspace;

/// A block of code of a document.
pub struct Snippet {
    /// The word behind the fence, with what follows a comma there.
    pub language: String,
    /// Its lines.
    pub text: String,
    /// Where it begins: the document and the line.
    pub place: String,
}

/// The blocks of a document, which is named by its path in the project, that have a language.
#[track_caller]
pub fn snippets(document: &str) -> Vec<Snippet> {
    let text = std::fs::read_to_string(workspace().join(document));
    let text = text.unwrap_or_else(|why| panic!("{document}: {why}"));
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

/// The text of the blocks in one language; at least one.
#[track_caller]
pub fn texts(document: &str, language: &str) -> Vec<String> {
    let of_it = |snippet: &Snippet| snippet.language.split(',').next() == Some(language);
    let found: Vec<_> = snippets(document).into_iter().filter(of_it).map(|s| s.text).collect();
    assert!(!found.is_empty(), "{document} has no {language}");
    found
}

/// The lines of the shell, without empty ones and without comments.
#[track_caller]
pub fn shell_lines(document: &str) -> Vec<String> {
    let blocks = texts(document, "sh");
    let lines = blocks.iter().flat_map(|block| block.lines());
    let words = lines.map(|line| line.split(" #").next().unwrap_or_default().trim().to_owned());
    words.filter(|line| !line.is_empty()).collect()
}
