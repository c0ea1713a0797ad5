//! Tables of numbers as text: comma-separated, a line of names first, `#` begins a comment.

use crate::error::Error;
use spandrel_pages::ByteSize;

/// Rows of fields under named columns.
#[derive(Debug)]
pub(crate) struct Table<'a> {
    names: Vec<&'a str>,
    header_line: usize,
    rows: Vec<Row<'a>>,
}

/// One line.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    /// Its number, from 1.
    pub(crate) line: usize,
    fields: Vec<&'a str>,
}

impl<'a> Table<'a> {
    /// Reads a table whose columns are among `known`, in any order.
    pub(crate) fn parse(text: &'a str, known: &[&str], rows_max: usize) -> Result<Self, Error> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut lines = text.lines().enumerate().filter_map(|(at, line)| {
            let line = line.split('#').next().unwrap_or("").trim();
            (!line.is_empty()).then_some((at + 1, line))
        });
        let Some((header_line, header)) = lines.next() else {
            return Err(Error::at(
                1,
                format!("nothing here; the first line names columns: {}", known.join(",")),
            ));
        };
        let names: Vec<&str> = fields(header).collect();
        for (at, name) in names.iter().enumerate() {
            if !known.contains(name) {
                let known = known.join(", ");
                let why = format!(
                    "unknown column '{}'; the first line names columns: {known}",
                    short(name)
                );
                return Err(Error::at(header_line, why));
            }
            if names[..at].contains(name) {
                return Err(Error::at(header_line, format!("two columns '{name}'; one is enough")));
            }
        }
        let mut rows = Vec::new();
        for (line, text) in lines {
            let fields: Vec<&str> = fields(text).collect();
            if fields.len() != names.len() {
                let (found, wanted) = (fields.len(), names.len());
                let s = if found == 1 { "" } else { "s" };
                return Err(Error::at(
                    line,
                    format!("{found} field{s}, but the first line names {wanted} columns"),
                ));
            }
            if rows.len() == rows_max {
                return Err(Error::at(
                    line,
                    format!("more than {rows_max} rows; put alike ones together"),
                ));
            }
            rows.push(Row { line, fields });
        }
        if rows.is_empty() {
            return Err(Error::at(header_line, "no rows below the names of the columns"));
        }
        Ok(Self { names, header_line, rows })
    }

    /// Is there such a column?
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    /// The rows, in order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row<'a>> {
        self.rows.iter()
    }

    /// An error about the columns.
    pub(crate) fn refuse(&self, message: String) -> Error {
        Error::at(self.header_line, message)
    }

    /// Refuses a table without these columns.
    pub(crate) fn require(&self, names: &[&str]) -> Result<(), Error> {
        match names.iter().find(|name| !self.has(name)) {
            Some(name) => Err(self.refuse(format!("no column '{name}'"))),
            None => Ok(()),
        }
    }

    fn field(&self, row: &Row<'a>, name: &str) -> Option<&'a str> {
        let at = self.names.iter().position(|n| *n == name)?;
        row.fields.get(at).copied()
    }

    /// A number between two others; `None` if there is no such column.
    pub(crate) fn number(
        &self,
        row: &Row,
        name: &str,
        from: f64,
        to: f64,
    ) -> Result<Option<f64>, Error> {
        let Some(field) = self.field(row, name) else { return Ok(None) };
        match field.parse::<f64>() {
            Ok(number) if number >= from && number <= to => Ok(Some(number)),
            Ok(_) => Err(Error::at(
                row.line,
                format!("{name} is {}; it is to be from {from} to {to}", short(field)),
            )),
            Err(_) => Err(Error::at(
                row.line,
                format!("{name} is '{}', which is no number", short(field)),
            )),
        }
    }

    /// A whole number between two others; `None` if there is no such column.
    pub(crate) fn whole(
        &self,
        row: &Row,
        name: &str,
        from: u32,
        to: u32,
    ) -> Result<Option<u32>, Error> {
        let Some(field) = self.field(row, name) else { return Ok(None) };
        match field.parse::<u32>() {
            Ok(number) if number >= from && number <= to => Ok(Some(number)),
            _ => Err(Error::at(
                row.line,
                format!(
                    "{name} is '{}'; it is to be a whole number from {from} to {to}",
                    short(field)
                ),
            )),
        }
    }

    /// Bytes, with a unit or without; `None` if there is no such column.
    pub(crate) fn bytes(&self, row: &Row, name: &str) -> Result<Option<u64>, Error> {
        let Some(field) = self.field(row, name) else { return Ok(None) };
        match ByteSize::parse(field) {
            Ok(size) => Ok(Some(size.0 as u64)),
            Err(why) => Err(Error::at(row.line, format!("{name} is '{}': {why}", short(field)))),
        }
    }
}

fn fields(line: &str) -> impl Iterator<Item = &str> {
    line.split(',').map(str::trim)
}

/// As much of a field as fits a message.
fn short(field: &str) -> &str {
    const SHOWN: usize = 40;
    match field.char_indices().nth(SHOWN) {
        Some((end, _)) => &field[..end],
        None => field,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> Error {
        Table::parse(text, &["a", "b"], 3).unwrap_err()
    }

    #[test]
    fn columns_come_in_any_order_and_comments_do_not_count() {
        let table = Table::parse(
            "\u{feff}# what\n\n b , a # names\n1,2\n# no\n 3 , 4.5 \n",
            &["a", "b", "c"],
            9,
        )
        .unwrap();
        assert!(table.has("a") && !table.has("c"));
        let rows: Vec<_> = table.rows().collect();
        assert_eq!((rows[0].line, rows[1].line), (4, 6));
        assert_eq!(table.number(rows[1], "a", 0.0, 9.0), Ok(Some(4.5)));
        assert_eq!(table.whole(rows[1], "b", 1, 3), Ok(Some(3)));
        assert_eq!(table.whole(rows[1], "c", 1, 3), Ok(None));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, line, part) in [
            ("", 1, "nothing here"),
            ("# x\na,x", 2, "'x'"),
            ("a,a", 1, "two columns"),
            ("a,b\n", 1, "no rows"),
            ("a,b\n1,2\n1", 3, "1 field,"),
            ("a\n1\n2\n3\n4", 5, "more than 3"),
        ] {
            let error = error(text);
            assert_eq!(error.line, Some(line), "{text:?}");
            assert!(error.message.contains(part), "{error}");
        }
        let table = Table::parse("a,b\nx,1e400", &["a", "b"], 3).unwrap();
        let row = table.rows().next().unwrap();
        assert_eq!(table.number(row, "a", 0.0, 1.0).unwrap_err().line, Some(2));
        assert!(table.number(row, "b", 0.0, 1.0).unwrap_err().message.contains("from 0 to 1"));
        assert!(table.bytes(row, "a").unwrap_err().message.contains("'x'"));
        assert!(table.whole(row, "a", 0, 1).is_err());
    }
}
