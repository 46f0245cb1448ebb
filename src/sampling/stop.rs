//! Stop strings: the answer ends where one of them is complete, and nothing of it is shown.

use crate::error::{Error, Result};

/// Cuts a streamed text before the first stop string. What is shown does not depend on how the text is cut into
/// pieces: the stop string that is complete first ends the answer (of several that end at the same place, the longest),
/// and text that may be the beginning of one is held back until that is known.
///
/// A special token given as a stop string (`<|eot_id|>`) has no text in a stream that leaves special tokens out:
/// compare the stop strings with the tokenizer's control texts and stop at their ids.
#[derive(Debug, Clone)]
pub struct StopStrings {
    stops: Vec<String>,
    /// The beginning of a stop string, perhaps.
    held: String,
    stopped: bool,
}

impl StopStrings {
    /// No stop strings at all let every text through at once.
    ///
    /// # Errors
    /// [`Error::Argument`] for an empty stop string: it would end every answer at its beginning.
    pub fn new(stops: Vec<String>) -> Result<StopStrings> {
        if stops.iter().any(String::is_empty) {
            let expected = "at least one character".into();
            return Err(Error::Argument { what: "stop string".into(), expected, got: "an empty string".into() });
        }
        Ok(StopStrings { stops, held: String::new(), stopped: false })
    }

    /// Takes the next piece of the answer; returns the text to show now, and whether a stop string has ended the answer.
    /// Everything after that is dropped.
    pub fn push(&mut self, piece: &str) -> (String, bool) {
        if self.stopped {
            return (String::new(), true);
        }
        self.held.push_str(piece);
        let found = self.stops.iter().filter_map(|stop| Some((self.held.find(stop)?, stop.len())));
        if let Some((start, _)) = found.min_by_key(|(start, len)| (start + len, *start)) {
            self.stopped = true;
            self.held.truncate(start);
            return (std::mem::take(&mut self.held), true);
        }
        let keep = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let kept = self.held.split_off(self.held.len() - keep);
        (std::mem::replace(&mut self.held, kept), false)
    }

    /// The answer has ended in another way: the text that was held back.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Bytes at the end of `text` that are a beginning of `stop`, but not all of it.
fn overlap(text: &str, stop: &str) -> usize {
    let longest = text.len().min(stop.len() - 1);
    (1..=longest).rev().find(|&n| text.as_bytes().ends_with(&stop.as_bytes()[..n])).unwrap_or(0)
}
