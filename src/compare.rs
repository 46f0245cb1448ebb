//! compare: runs a model step by step on the GPU and on the CPU reference side by side, to find the first step whose
//! values differ. This is how a wrong kernel, a wrong driver or a damaged upload is found.

use crate::error::Result;
use crate::gguf::Gguf;
use crate::reference::ReferenceModel;
use crate::session::Session;
use std::collections::HashMap;

/// One step on both sides.
#[derive(Debug, Clone)]
pub struct StepDifference {
    /// "blk.3.attn_q".
    pub label: String,
    pub kernel: &'static str,
    /// Largest absolute difference, divided by the largest absolute value of the reference.
    pub relative: f32,
    /// Where it lies: token of the pass, and column.
    pub token: usize,
    pub column: usize,
    pub got: f32,
    pub want: f32,
}

/// Runs one pass over `tokens` on a new session and on the reference; gives every step that both have, in order.
/// The session should be an exact one, and the tokens no more than one chunk.
pub async fn compare(session: &mut Session, gguf: &Gguf, tokens: &[u32]) -> Result<Vec<StepDifference>> {
    let mut reference = ReferenceModel::<f32>::from_gguf(gguf)?;
    let mut wanted: HashMap<String, Vec<f32>> = HashMap::new();
    reference.append_traced(tokens, &mut |label, values| {
        wanted.insert(label.into(), values.to_vec());
    })?;
    let mut steps = Vec::new();
    session
        .capture(tokens, |step, got| {
            let Some(want) = wanted.get(&step.label) else { return };
            // a step that works on the last token only is compared with the reference's last row
            let want = &want[want.len() - got.len()..];
            let cols = step.output.cols as usize;
            let size = want.iter().fold(f32::MIN_POSITIVE, |most, v| most.max(v.abs()));
            let apart = |i: usize| if got[i].is_finite() { (got[i] - want[i]).abs() } else { f32::INFINITY };
            let worst = (0..got.len()).max_by(|&a, &b| apart(a).total_cmp(&apart(b))).unwrap_or(0);
            steps.push(StepDifference {
                label: step.label.clone(),
                kernel: step.kernel.name,
                relative: apart(worst) / size,
                token: worst / cols,
                column: worst % cols,
                got: got[worst],
                want: want[worst],
            });
        })
        .await?;
    Ok(steps)
}
