//! Taps: activations read out by name, with statistics that the GPU computes, and linear CKA to compare two of them.
//!
//! A tap is an activation that gets a tensor of its own: the step that computes it anyway writes there, and nothing else
//! does until the pass has been read. So a plan without taps is the plan that it always was. What lies in such a tensor
//! could be changed as well as read, by a step behind the one that writes it; nothing does that yet.

use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::kernels::statistics::{PART, parts_of, statistics};
use crate::model::Config;
use crate::model::state::Activations;
use crate::plan::{Frame, Plan, PlanBuilder};
use crate::tensor::Tensor;

/// A place in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Site {
    /// The norm before attention.
    AttnNorm,
    /// What attention adds to the residual stream: its output projection with bias and adapters.
    AttnOut,
    /// The norm before the feed-forward.
    FfnNorm,
    /// What the feed-forward adds to the residual stream: its down projection with bias and adapters.
    FfnOut,
    /// The residual stream as the block leaves it.
    ResidPost,
}

impl Site {
    /// In the order of a pass.
    pub const ALL: [Site; 5] = [Site::AttnNorm, Site::AttnOut, Site::FfnNorm, Site::FfnOut, Site::ResidPost];

    pub fn name(self) -> &'static str {
        match self {
            Site::AttnNorm => "attn_norm",
            Site::AttnOut => "attn_out",
            Site::FfnNorm => "ffn_norm",
            Site::FfnOut => "ffn_out",
            Site::ResidPost => "resid_post",
        }
    }
}

/// An activation that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tap {
    /// Of a block, [T, C].
    Block(usize, Site),
    /// [T, V].
    Logits,
}

impl Tap {
    /// "blk.3.attn_out", "logits".
    pub fn name(self) -> String {
        match self {
            Tap::Block(block, site) => format!("blk.{block}.{}", site.name()),
            Tap::Logits => "logits".into(),
        }
    }

    /// All of a model, in the order of a pass.
    pub fn all(config: &Config) -> impl Iterator<Item = Tap> {
        let blocks = 0..config.block_count as usize;
        blocks.flat_map(|block| Site::ALL.map(|site| Tap::Block(block, site))).chain([Tap::Logits])
    }
}

/// Which activations are read: in the order of a pass, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taps(Vec<Tap>);

impl Taps {
    /// Adds all whose names match; in a pattern `*` stands for any characters, none too.
    ///
    /// # Errors
    /// [`Error::Argument`] for a pattern that no activation of such a model matches.
    pub fn add(&mut self, config: &Config, pattern: &str) -> Result<()> {
        let found: Vec<Tap> = Tap::all(config).filter(|tap| matches(pattern, &tap.name())).collect();
        if found.is_empty() {
            let sites = Site::ALL.map(Site::name).join(", ");
            let last = config.block_count.saturating_sub(1);
            let expected = format!("logits, or blk.N. (N from 0 to {last}) and one of {sites}; * stands for anything");
            return Err(Error::Argument { what: "name of a tap".into(), expected, got: format!("{pattern:?}") });
        }
        self.0.extend(found);
        self.0.sort_unstable();
        self.0.dedup();
        Ok(())
    }

    pub fn list(&self) -> &[Tap] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a pass is another for them: logits lie ready in any case.
    pub(crate) fn reach_blocks(&self) -> bool {
        self.0.iter().any(|tap| *tap != Tap::Logits)
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

/// Rows of numbers, one a token.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Activation {
    pub rows: u32,
    pub cols: u32,
    pub values: Vec<f32>, // [rows, cols]
}

/// What a tap gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Tapped {
    /// "blk.3.attn_out".
    pub name: String,
    pub activation: Activation,
    pub statistics: Statistics,
}

impl Tapped {
    /// Adds the tokens of a later pass over the same tap.
    pub fn extend(&mut self, later: Tapped) {
        self.activation.rows += later.activation.rows;
        self.activation.values.extend(later.activation.values);
        self.statistics.extend(&later.statistics);
    }
}

/// Adds what later passes gave, tap by tap.
pub fn extend(all: &mut Vec<Tapped>, later: Vec<Tapped>) {
    for tapped in later {
        match all.iter_mut().find(|earlier| earlier.name == tapped.name) {
            Some(earlier) => earlier.extend(tapped),
            None => all.push(tapped),
        }
    }
}

/// Statistics of an activation's numbers. NaN are counted, and left out of all else.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Statistics {
    /// Numbers that are not NaN.
    pub count: u64,
    pub nan: u64,
    /// NaN where there is no number, as max.
    pub min: f32,
    pub max: f32,
    pub sum: f64,
    pub sum_of_sizes: f64,
    pub sum_of_squares: f64,
}

impl Statistics {
    /// Of nothing.
    const NONE: Statistics = Statistics {
        count: 0,
        nan: 0,
        min: f32::INFINITY,
        max: f32::NEG_INFINITY,
        sum: 0.0,
        sum_of_sizes: 0.0,
        sum_of_squares: 0.0,
    };

    /// From the parts that [`statistics`] leaves for so many rows of `cols`.
    fn of_parts(parts: &[f32], rows: u32, cols: u32) -> Statistics {
        let mut all = Statistics { count: rows as u64 * cols as u64, ..Statistics::NONE };
        for part in parts.chunks_exact(PART as usize) {
            let [squares, sum, sizes, nan, max, minus_min] = [0, 1, 2, 3, 4, 5].map(|i| part[i]);
            all.nan += nan as u64;
            all.sum_of_squares += squares as f64;
            all.sum += sum as f64;
            all.sum_of_sizes += sizes as f64;
            (all.min, all.max) = (all.min.min(-minus_min), all.max.max(max));
        }
        all.count -= all.nan;
        if all.count == 0 {
            (all.min, all.max) = (f32::NAN, f32::NAN);
        }
        all
    }

    fn extend(&mut self, later: &Statistics) {
        self.count += later.count;
        self.nan += later.nan;
        (self.min, self.max) = (self.min.min(later.min), self.max.max(later.max)); // these pass over NaN
        self.sum += later.sum;
        self.sum_of_sizes += later.sum_of_sizes;
        self.sum_of_squares += later.sum_of_squares;
    }

    /// The root of the sum of squares.
    pub fn l2(&self) -> f64 {
        self.sum_of_squares.sqrt()
    }

    /// NaN without numbers, as all means.
    pub fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    /// The mean of the absolute values.
    pub fn mean_abs(&self) -> f64 {
        self.sum_of_sizes / self.count as f64
    }
}

/// What is read after each pass of one plan.
pub(crate) struct Readout {
    taps: Vec<Source>,
    plan: Plan,
    parts: Tensor, // [1, floats of all parts]
}

struct Source {
    tap: Tap,
    tensor: Tensor, // [T, cols]; the logits may be of the last token alone: [1, V]
    first: u32,     // where its parts begin, in floats
}

impl Readout {
    /// For passes of up to `tokens` tokens; None without taps.
    pub fn new(gpu: &Gpu, taps: &[Tap], activations: &Activations, tokens: u32) -> Result<Option<Readout>> {
        if taps.is_empty() {
            return Ok(None);
        }
        let (mut sources, mut floats) = (Vec::new(), 0);
        for &tap in taps {
            let tensor = activations.tapped(tap).clone();
            let own = tensor.rows * parts_of(tensor.cols) * PART;
            sources.push(Source { tap, tensor, first: floats });
            floats += own;
        }
        let parts = Tensor::new(gpu, "parts of statistics", 1, floats)?;
        let mut plan = PlanBuilder::new(gpu, tokens);
        for Source { tap, tensor, first } in &sources {
            statistics(&mut plan, &format!("{}.statistics", tap.name()), tensor, &parts, *first)?;
        }
        Ok(Some(Readout { taps: sources, plan: plan.finish("statistics")?, parts }))
    }

    /// Reads all taps after a pass of so many tokens; the logits only where those of this pass are wanted.
    pub async fn read(&self, gpu: &Gpu, tokens: u32, logits: bool) -> Result<Vec<Tapped>> {
        let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        self.plan.record(&mut encoder, Frame { position: 0, tokens });
        gpu.queue().submit([encoder.finish()]);
        let parts = self.parts.read(gpu, 1).await?;
        let mut all = Vec::new();
        for Source { tap, tensor, first } in &self.taps {
            if *tap == Tap::Logits && !logits {
                continue;
            }
            let (rows, cols) = (tokens.min(tensor.rows), tensor.cols);
            let own = (rows * parts_of(cols) * PART) as usize;
            all.push(Tapped {
                name: tap.name(),
                activation: Activation { rows, cols, values: tensor.read(gpu, rows).await? },
                statistics: Statistics::of_parts(&parts[*first as usize..][..own], rows, cols),
            });
        }
        Ok(all)
    }
}

/// Linear CKA: how alike two representations of the same tokens are, from 0 to 1, whatever rotates, mirrors or scales
/// either. a [T, A], b [T, B] in f64, columns centred: |a^T b|^2 / (|a^T a| |b^T b|) in Frobenius norms
/// (Kornblith et al. 2019, <https://arxiv.org/abs/1905.00414>). Few tokens make anything look alike: take many more than
/// there are columns.
///
/// # Errors
/// [`Error::Argument`] for different numbers of rows, fewer than two, or numbers that are not finite or the same in all rows.
pub fn linear_cka(a: &Activation, b: &Activation) -> Result<f64> {
    let bad = |expected: &str, got: String| {
        Err(Error::Argument { what: "activations to compare by CKA".into(), expected: expected.into(), got })
    };
    if a.rows != b.rows {
        return bad("as many rows (tokens) in both", format!("{} and {}", a.rows, b.rows));
    }
    if a.rows < 2 {
        return bad("two rows (tokens) or more", a.rows.to_string());
    }
    if a.cols == 0 || b.cols == 0 {
        return bad("one column or more in both", format!("{} and {}", a.cols, b.cols));
    }
    let (x, y) = (centred(a), centred(b));
    let rows = |x: &[f64], i: usize, j: usize, cols: u32| -> f64 {
        let row = |i: usize| &x[i * cols as usize..][..cols as usize];
        row(i).iter().zip(row(j)).map(|(a, b)| a * b).sum()
    };
    // |a^T b|^2 is the sum over pairs of rows of (a a^T) (b b^T), which needs no matrix to be kept
    let (mut both, mut of_a, mut of_b) = (0.0, 0.0, 0.0);
    for i in 0..a.rows as usize {
        for j in 0..=i {
            let times = if i == j { 1.0 } else { 2.0 }; // the products are symmetric
            let (k, l) = (rows(&x, i, j, a.cols), rows(&y, i, j, b.cols));
            both += times * k * l;
            of_a += times * k * k;
            of_b += times * l * l;
        }
    }
    let size = of_a.sqrt() * of_b.sqrt();
    if !(size > 0.0 && size.is_finite() && both.is_finite()) {
        let expected = "finite numbers that vary from row to row";
        return bad(expected, format!("squared sizes {of_a:e} and {of_b:e} after centring"));
    }
    Ok(both / size)
}

/// [rows, cols], the mean of each column taken off.
fn centred(x: &Activation) -> Vec<f64> {
    let cols = x.cols as usize;
    let mut means = vec![0.0f64; cols];
    for row in x.values.chunks_exact(cols) {
        means.iter_mut().zip(row).for_each(|(mean, v)| *mean += *v as f64 / x.rows as f64);
    }
    x.values.chunks_exact(cols).flat_map(|row| row.iter().zip(&means).map(|(v, mean)| *v as f64 - mean)).collect()
}
