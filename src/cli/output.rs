//! What people and programs see: errors as one readable chain, JSON as one line, progress only on a terminal.

use std::error::Error;
use std::io::{IsTerminal, Write};

/// "error: what" and, indented, what caused it.
pub fn report(failure: &(dyn Error + 'static)) {
    let mut out = std::io::stderr().lock();
    let red = if std::io::stderr().is_terminal() { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
    let _ = writeln!(out, "{}error:{} {failure}", red.0, red.1);
    let mut source = failure.source();
    while let Some(cause) = source {
        let _ = writeln!(out, "  caused by: {cause}");
        source = cause.source();
    }
}

/// Prints one JSON value on a line of its own.
pub fn json(value: &serde_json::Value) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, value).map_err(std::io::Error::from)?;
    out.write_all(b"\n")
}

/// "1.5 MB".
pub fn bytes(count: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (count as f64, 0);
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", units[unit]) }
}

/// A bar of bytes on standard error; hidden where that is no terminal.
pub fn byte_bar(what: &str) -> indicatif::ProgressBar {
    let bar =
        if std::io::stderr().is_terminal() { indicatif::ProgressBar::new(0) } else { indicatif::ProgressBar::hidden() };
    let style = indicatif::ProgressStyle::with_template("{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    bar.set_style(style.expect("a valid template").progress_chars("=> "));
    bar.set_message(what.to_string());
    bar
}
