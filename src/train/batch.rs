//! Batches: whole sequences with their labels.

use crate::error::{Error, Result};

/// A label that counts for nothing: padding, or a token that is not to be learned.
pub const IGNORED: u32 = u32::MAX;

/// Tokens of one sequence and, for each, the token that should follow it, or [`IGNORED`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    pub ids: Vec<u32>,
    pub labels: Vec<u32>,
}

impl Sequence {
    /// Every token is to be followed by the next; so the last has no label and is left out. Needs two tokens.
    pub fn next_tokens(tokens: &[u32]) -> Sequence {
        let ids = tokens.split_last().map_or(&[][..], |(_, before)| before).to_vec();
        Sequence { ids, labels: tokens.get(1..).unwrap_or_default().to_vec() }
    }

    /// Labels that count.
    pub fn counted(&self) -> usize {
        self.labels.iter().filter(|&&label| label != IGNORED).count()
    }
}

/// Labels that count in a batch.
///
/// # Errors
/// [`Error::Argument`] for a label outside the vocabulary, for other than as many labels as tokens, and where no label counts.
/// What is wrong with the tokens themselves, the pass tells.
pub fn counted(batch: &[Sequence], vocab: u32) -> Result<usize> {
    let wrong = |expected: String, got: String| Err(Error::Argument { what: "labels".into(), expected, got });
    for Sequence { ids, labels } in batch {
        if ids.len() != labels.len() {
            return wrong(format!("one for each of {} tokens", ids.len()), labels.len().to_string());
        }
        if let Some(label) = labels.iter().find(|&&label| label >= vocab && label != IGNORED) {
            return wrong(format!("ids below the vocabulary's {vocab}"), label.to_string());
        }
    }
    match batch.iter().map(Sequence::counted).sum() {
        0 => wrong("one at least that is not ignored".into(), "none".into()),
        counted => Ok(counted),
    }
}
