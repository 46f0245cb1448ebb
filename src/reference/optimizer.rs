//! The optimizer's arithmetic, in f64.

use super::ops::Number;
use crate::train::AdamW;

/// The mean gradient and the mean squared gradient of one tensor so far.
#[derive(Debug, Clone)]
pub struct Moments {
    mean: Vec<f64>,
    square: Vec<f64>,
}

impl Moments {
    pub fn new(len: usize) -> Moments {
        Moments { mean: vec![0.0; len], square: vec![0.0; len] }
    }
}

/// One step of AdamW on one tensor: w (1 - rate decay) - rate mean / (sqrt(square) + eps), where the means are divided by
/// what they lack after so few steps. `step` counts from 1.
pub fn adamw<F: Number>(w: &mut [F], gradient: &[F], moments: &mut Moments, adamw: &AdamW, rate: f64, step: u64) {
    assert!(w.len() == gradient.len() && w.len() == moments.mean.len(), "adamw: w and its gradient have one shape");
    let AdamW { beta1, beta2, eps, decay } = *adamw;
    let lacks = |beta: f64| 1.0 - beta.powf(step as f64);
    for (i, (w, g)) in w.iter_mut().zip(gradient).enumerate() {
        let g = g.to_f64();
        let (mean, square) = (&mut moments.mean[i], &mut moments.square[i]);
        *mean = beta1 * *mean + (1.0 - beta1) * g;
        *square = beta2 * *square + (1.0 - beta2) * g * g;
        let change = (*mean / lacks(beta1)) / ((*square / lacks(beta2)).sqrt() + eps);
        *w = F::of(w.to_f64() * (1.0 - rate * decay) - rate * change);
    }
}

/// One step of SGD on one tensor: w (1 - rate decay) - rate m, with m its old value times `momentum` plus the gradient.
pub fn sgd<F: Number>(w: &mut [F], gradient: &[F], momenta: &mut [f64], momentum: f64, decay: f64, rate: f64) {
    assert!(w.len() == gradient.len() && w.len() == momenta.len(), "sgd: w, its gradient and momenta have one shape");
    for ((w, g), m) in w.iter_mut().zip(gradient).zip(momenta) {
        *m = momentum * *m + g.to_f64();
        *w = F::of(w.to_f64() * (1.0 - rate * decay) - rate * *m);
    }
}

/// The length of all gradients as one vector.
pub fn global_norm<'a, F: Number + 'a>(gradients: impl IntoIterator<Item = &'a [F]>) -> f64 {
    gradients.into_iter().flatten().map(|g| g.to_f64() * g.to_f64()).sum::<f64>().sqrt()
}
