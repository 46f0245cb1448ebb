//! Rotary position embedding: which numbers of a head form a pair, and how fast each pair turns.

/// Which two numbers of a head turn together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// (0, 1), (2, 3), ..: `llama` files, whose Q and K rows the converters permute for this.
    Neighbours,
    /// (0, dims/2), (1, dims/2 + 1), ..: the Qwen family.
    Halves,
}

/// All that the rope op needs besides positions.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// How many numbers of each head turn; the rest pass unchanged. Even, at most the head size.
    pub dims: usize,
    /// Radians per position for each pair, `[dims/2]`; scaling and frequency factors are already in it.
    pub inv_freq: Vec<f32>,
    /// Multiplies sine and cosine; 1 unless YaRN or an attention factor asks for more.
    pub magnitude: f32,
    pub pairing: Pairing,
}

impl Rope {
    /// The places of pair `i` inside a head.
    pub fn of(_c: &super::Config, _f: Option<&[f32]>) -> crate::Result<Rope> {
        panic!()
    }
    pub fn pair(&self, i: usize) -> (usize, usize) {
        match self.pairing {
            Pairing::Neighbours => (2 * i, 2 * i + 1),
            Pairing::Halves => (i, i + self.dims / 2),
        }
    }
}
