//! The settings of the optimizer.

/// AdamW with bias correction and decoupled weight decay: Loshchilov and Hutter, <https://arxiv.org/abs/1711.05101>.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// What stays of the mean gradient from one step to the next.
    pub beta1: f64,
    /// The same for the mean squared gradient.
    pub beta2: f64,
    /// Added to the root of the mean square.
    pub eps: f64,
    /// What share of a weight is taken away at each step, times the learning rate. For matrices alone: gains and biases
    /// are not drawn towards zero.
    pub decay: f64,
}

impl Default for AdamW {
    fn default() -> AdamW {
        AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8, decay: 0.01 }
    }
}
