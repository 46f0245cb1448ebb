//! The order in which sequences are learned: which are kept back for validation, and an endless row of shuffled batches.

use super::Sequence;
use crate::error::{Error, Result};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;

/// Sequences for training and, chosen at random, the share `fraction` of them for validation; both keep their order. The same
/// seed chooses the same. A fraction above 0 gives at least one for validation and leaves at least one for training.
///
/// # Errors
/// [`Error::Argument`] for a fraction outside 0 to 1 (1 itself is outside), and for one above 0 of fewer than two sequences.
pub fn split(sequences: Vec<Sequence>, fraction: f64, seed: u64) -> Result<(Vec<Sequence>, Vec<Sequence>)> {
    let wrong = |what: &str, expected: &str, got: String| {
        Err(Error::Argument { what: what.into(), expected: expected.into(), got })
    };
    if !(0.0..1.0).contains(&fraction) {
        return wrong("share of the data for validation", "0 or more and less than 1", fraction.to_string());
    }
    if fraction == 0.0 {
        return Ok((sequences, Vec::new()));
    }
    let n = sequences.len();
    if n < 2 {
        return wrong("data to be split for validation", "two sequences or more (or a share of 0)", n.to_string());
    }
    let count = ((n as f64 * fraction).round() as usize).clamp(1, n - 1);
    let mut kept_back = vec![false; n];
    shuffled(n, &mut Pcg64::seed_from_u64(seed)).iter().take(count).for_each(|&i| kept_back[i] = true);
    let mut kept_back = kept_back.into_iter();
    let (validation, training) = sequences.into_iter().partition(|_| kept_back.next() == Some(true));
    Ok((training, validation))
}

/// Batches without end. Every epoch goes through all sequences once, in an order of its own that the seed decides; its last
/// batch is as small as what is left. All state is the position: a run that goes on from it sees the same batches.
#[derive(Debug, Clone)]
pub struct Batches {
    sequences: Vec<Sequence>,
    batch: usize,
    seed: u64,
    position: u64,
    order: (u64, Vec<usize>), // an epoch and its order
}

impl Batches {
    /// `batch` sequences at a time.
    ///
    /// # Errors
    /// [`Error::Argument`] where there are no sequences, and for batches of none.
    pub fn new(sequences: Vec<Sequence>, batch: usize, seed: u64) -> Result<Batches> {
        if sequences.is_empty() || batch == 0 {
            let what = if batch == 0 { "sequences of a batch" } else { "training data" }.into();
            return Err(Error::Argument { what, expected: "one sequence or more".into(), got: "none".into() });
        }
        let order = (0, order(sequences.len(), seed, 0));
        Ok(Batches { sequences, batch, seed, position: 0, order })
    }

    /// Goes on from here: where [`Batches::position`] was after some batch, the next ones are those that came then.
    pub fn set_position(&mut self, position: u64) {
        self.position = position;
        if self.order.0 != self.epoch() {
            self.order = (self.epoch(), order(self.sequences.len(), self.seed, self.epoch()));
        }
    }

    /// Sequences drawn so far, in all epochs.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The epoch of the next batch, from 0.
    pub fn epoch(&self) -> u64 {
        self.position / self.sequences.len() as u64
    }

    /// Batches of an epoch.
    pub fn steps_per_epoch(&self) -> u64 {
        self.sequences.len().div_ceil(self.batch) as u64
    }

    /// The next batch: one sequence or more. (Not called `next`: it is no iterator, as it never ends.)
    pub fn next_batch(&mut self) -> Vec<Sequence> {
        let at = (self.position % self.sequences.len() as u64) as usize;
        let batch: Vec<Sequence> =
            self.order.1[at..].iter().take(self.batch).map(|&i| self.sequences[i].clone()).collect();
        self.set_position(self.position + batch.len() as u64);
        batch
    }
}

/// The order of an epoch's `n` sequences. The seed is stirred before the epoch is added, so that neighbouring seeds do not
/// share orders.
fn order(n: usize, seed: u64, epoch: u64) -> Vec<usize> {
    let key = Pcg64::seed_from_u64(seed).next_u64();
    shuffled(n, &mut Pcg64::seed_from_u64(key.wrapping_add(epoch)))
}

/// The numbers below `n` in random order (Fisher and Yates).
fn shuffled(n: usize, random: &mut Pcg64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        let j = (random.next_u64() as u128 * (i as u128 + 1)) >> 64; // below i + 1
        order.swap(i, j as usize);
    }
    order
}
