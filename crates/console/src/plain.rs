//! Tables that are shown in more than one way: for a terminal, and as Markdown for a document.

use crate::terminal::table;

/// The contents of a table, without a form.
pub struct Plain {
    /// What stands above.
    pub header: Vec<String>,
    /// Whether a row stands out, and what is in it.
    pub rows: Vec<(bool, Vec<String>)>,
}

impl Plain {
    /// For a terminal.
    pub fn text(&self) -> String {
        let mut table = table::new(&self.header);
        for (stands_out, cells) in &self.rows {
            table::add(&mut table, *stands_out, cells.clone());
        }
        table.to_string()
    }

    /// As Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('\n', " ")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let mut text = line(&self.header);
        text.push_str(&format!("|---|{}\n", "---:|".repeat(self.header.len().saturating_sub(1))));
        for (stands_out, cells) in &self.rows {
            let mut cells = cells.clone();
            if let Some(first) = cells.first_mut().filter(|_| *stands_out) {
                *first = format!("**{first}**");
            }
            text.push_str(&line(&cells));
        }
        text
    }
}

/// As Markdown, `of` standing above it.
pub fn markdown(tables: &[Plain], of: &str) -> String {
    let tables: Vec<String> = tables.iter().map(Plain::markdown).collect();
    format!("{of}\n\n{}", tables.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_is_a_table() {
        let plain = Plain {
            header: vec!["a".into(), "b\nc".into()],
            rows: vec![(false, vec!["x".into(), "1".into()]), (true, vec!["y".into(), "2".into()])],
        };
        assert_eq!(plain.markdown(), "| a | b c |\n|---|---:|\n| x | 1 |\n| **y** | 2 |\n");
        assert!(plain.text().contains('x'));
    }
}
