//! What people and programs see. Results go to standard output, everything else to standard error. On a terminal,
//! errors and warnings are coloured, long lines break between words, and slow work shows a bar.

use super::Failure;
use console::{Term, measure_text_width, style};
use std::error::Error;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// Writes to standard output at once, so that a text appears as it comes.
pub fn show(text: impl AsRef<[u8]>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_ref())?;
    out.flush()
}

/// A text that comes in pieces, on standard output. A terminal would break its lines within words: a word that reaches
/// the edge is taken to the next line instead. What is no terminal gets the text as it is.
#[derive(Default)]
pub struct Page {
    column: usize,
    /// The word that is being written.
    word: String,
    begun: bool,
}

impl Page {
    /// Ends the line of a text that an error broke off: the error begins one.
    pub fn end_line(&mut self) {
        if self.begun {
            let _ = show("\n"); // the error is told in any case
        }
    }

    pub fn show(&mut self, piece: &str) -> io::Result<()> {
        self.begun = true;
        let out = Term::stdout();
        match out.size_checked() {
            Some((_, columns)) if out.is_term() => show(self.lay_out(piece, columns as usize)),
            _ => show(piece),
        }
    }

    /// What to write for the piece. The last column stays free: there, terminals disagree on where the cursor is.
    fn lay_out(&mut self, piece: &str, columns: usize) -> String {
        let mut out = String::new();
        for c in piece.chars() {
            let width = measure_text_width(c.encode_utf8(&mut [0; 4]));
            if c == '\n' {
                self.column = 0;
                self.word.clear();
            } else if self.column + width >= columns && self.column > 0 {
                let written = measure_text_width(&self.word);
                if written > 0 && written < self.column {
                    out += &format!("\x1b[{written}D\x1b[K"); // back to where the word began
                    out += "\n";
                    out += &self.word;
                    self.column = written;
                } else {
                    out += "\n";
                    self.column = 0;
                }
                if c == ' ' && self.column == 0 {
                    continue;
                }
            }
            self.column += if c == '\t' { 8 - self.column % 8 } else { width };
            out.push(c);
            // between wide characters, as of Chinese, a line may break anywhere
            if c.is_whitespace() || width > 1 { self.word.clear() } else { self.word.push(c) }
        }
        out
    }
}

/// A line of the result; on a terminal it breaks between words and goes on `indent` columns from the left.
pub fn line(text: impl Display, indent: usize) -> io::Result<()> {
    show(wrap(&Term::stdout(), text.to_string(), indent) + "\n")
}

/// Prints one JSON value on a line of its own.
pub fn json(value: &serde_json::Value) -> io::Result<()> {
    show(value.to_string() + "\n")
}

/// A line on standard error. That nobody reads it is no failure.
pub fn tell(text: impl Display) {
    let text = wrap(&Term::stderr(), text.to_string(), 0);
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Refuses a file that an output must not take the place of; `option` names it, `what` is the output. Nothing is made or
/// changed yet, and a pipe, whose opening would wait for a reader, is not opened.
pub fn may_be_overwritten(path: &Path, option: &str, what: &str) -> Result<(), Failure> {
    let Ok(there) = path.metadata() else { return Ok(()) }; // a new file
    // Its first bytes tell a model, the one that is run among them, by whatever name or link, or a part of it.
    let is_model = || {
        let mut magic = [0; 4];
        File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && &magic == b"GGUF"
    };
    let is = match () {
        () if there.is_dir() => "a folder",
        () if !there.is_file() => "no regular file",
        () if is_model() => "a GGUF model",
        () => return Ok(()),
    };
    let (expected, got) = (format!("the name of a file for {what}"), format!("{}, which is {is}", path.display()));
    Err(peregrine::Error::Argument { what: option.into(), expected, got }.into())
}

/// "error: what" and, indented, what caused it.
pub fn report(failure: &(dyn Error + 'static)) {
    let err = Term::stderr();
    let mut text = wrap(&err, format!("{} {failure}", style("error:").red().bold().for_stderr()), 2);
    let mut source = failure.source();
    while let Some(cause) = source {
        text += "\n";
        text += &wrap(&err, format!("  caused by: {cause}"), 4);
        source = cause.source();
    }
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// What the library logs: "warning: what".
pub fn logged(level: log::Level, text: impl Display) -> String {
    let head = match level {
        log::Level::Error => style("error:").red().bold(),
        log::Level::Warn => style("warning:").yellow().bold(),
        log::Level::Info => style("info:").cyan(),
        log::Level::Debug => style("debug:").dim(),
        log::Level::Trace => style("trace:").dim(),
    };
    wrap(&Term::stderr(), format!("{} {text}", head.for_stderr()), 2)
}

/// Breaks lines that are longer than the terminal between words. What is no terminal gets the text as it is.
fn wrap(term: &Term, text: String, indent: usize) -> String {
    match term.size_checked() {
        Some((_, columns)) if term.is_term() => wrap_at(columns as usize, &text, indent),
        _ => text,
    }
}

fn wrap_at(columns: usize, text: &str, indent: usize) -> String {
    let mut lines = Vec::new();
    for paragraph in text.split('\n') {
        let mut line = String::new();
        for word in paragraph.split_inclusive(' ') {
            let width = measure_text_width(&line) + measure_text_width(word.trim_end());
            if width > columns && !line.trim().is_empty() {
                lines.push(std::mem::take(&mut line).trim_end().to_string());
                line = " ".repeat(indent);
            }
            line += word;
        }
        lines.push(line.trim_end().to_string());
    }
    lines.join("\n")
}

/// "1.5 MB".
pub fn bytes(count: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (count as f64, 0);
    while value >= 999.95 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", units[unit]) }
}

/// "1 token", "2 tokens".
pub fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A bar of bytes on standard error; hidden where that is no terminal.
pub fn byte_bar(what: &'static str) -> indicatif::ProgressBar {
    let bar = indicatif::ProgressBar::new(0);
    let template = "{msg} [{wide_bar}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}";
    let style = indicatif::ProgressStyle::with_template(template).expect("a valid template");
    bar.set_style(style.progress_chars("=> "));
    bar.set_message(what);
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        let cases = [
            (10, "short", 2, "short"),
            (10, "one two three", 2, "one two\n  three"),
            (10, "exactly te", 2, "exactly te"),
            (10, "exactly ten", 2, "exactly\n  ten"),
            (10, "a-word-longer-than-the-line b", 0, "a-word-longer-than-the-line\nb"),
            (10, "two\nlines stay two", 1, "two\nlines stay\n two"),
            (10, "日本語 日本語 日本語", 0, "日本語\n日本語\n日本語"), // two columns a character
            (10, "  indented line here", 4, "  indented\n    line\n    here"),
        ];
        let failures: Vec<_> = cases
            .iter()
            .map(|(columns, text, indent, want)| (text, wrap_at(*columns, text, *indent), want))
            .filter(|(_, got, want)| got != *want)
            .collect();
        assert!(failures.is_empty(), "{failures:#?}");
    }

    #[test]
    fn words_that_reach_the_edge_go_to_the_next_line() {
        let back = |n: usize| format!("\x1b[{n}D\x1b[K\n");
        let cases: [(usize, &[&str], String); 7] = [
            (10, &["one two", " six"], "one two s".to_string() + &back(1) + "six"),
            (10, &["one tw", "entyone"], "one twent".to_string() + &back(5) + "twentyone"),
            (10, &["a\nb ", "c"], "a\nb c".into()),
            (5, &["abcdefgh"], "abcd\nefgh".into()), // longer than a line: nothing else can be done
            (10, &["123456789 x"], "123456789\nx".into()),
            (7, &["日本語文"], "日本語\n文".into()),
            (80, &["x", "", " y"], "x y".into()),
        ];
        for (columns, pieces, want) in cases {
            let mut page = Page::default();
            let got: String = pieces.iter().map(|piece| page.lay_out(piece, columns)).collect();
            assert_eq!(got, want, "{pieces:?} at {columns} columns");
        }
    }

    #[test]
    fn byte_counts() {
        let cases = [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (999_950, "1.0 MB")];
        for (count, want) in cases {
            assert_eq!(bytes(count), want);
        }
    }
}
