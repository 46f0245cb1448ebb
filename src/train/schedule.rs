//! The learning rate of every step.

/// How the learning rate goes down after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Decline {
    Constant,
    Linear,
    /// Half a period of a cosine.
    #[default]
    Cosine,
}

/// Up in a line to `rate`, then down to its `least` share at the last step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    pub rate: f64,
    /// Steps until the whole rate is reached.
    pub warm_up: u64,
    /// Of the run; where it goes on, the rate stays as it is at the end.
    pub steps: u64,
    pub decline: Decline,
    /// What share of the rate is left at the end.
    pub least: f64,
}

impl Default for Schedule {
    /// The same rate for ever.
    fn default() -> Schedule {
        Schedule { rate: 2e-4, warm_up: 0, steps: 0, decline: Decline::Constant, least: 0.0 }
    }
}

impl Schedule {
    /// The learning rate of a step, counted from 0.
    pub fn at(&self, step: u64) -> f64 {
        if step < self.warm_up {
            return self.rate * (step + 1) as f64 / self.warm_up as f64;
        }
        let steps = self.steps.saturating_sub(self.warm_up).max(1);
        let done = ((step - self.warm_up) as f64 / steps as f64).min(1.0);
        let left = match self.decline {
            Decline::Constant => return self.rate,
            Decline::Linear => 1.0 - done,
            Decline::Cosine => (1.0 + (std::f64::consts::PI * done).cos()) / 2.0,
        };
        self.rate * (self.least + (1.0 - self.least) * left)
    }
}
