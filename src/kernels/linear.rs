//! y[t] = W x[t]: matvec for one token (or a few), matmul for many, each in a version for real GPUs and one for processors
//! that emulate a GPU. What becomes of the results (stored, added to the residual stream, ..) is part of the step.

use super::rms_norm::Rows;
use super::{Columns, few_tokens, reduce};
use crate::error::Result;
use crate::gpu::{Gpu, Matrix, Profile};
use crate::kernel::{KernelKey, params};
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::shaders::format_files;
use crate::tensor::{Element, Tensor};
use crate::weight::{Part, Vector, Weight};

params! {
    LinearParams {
        rows: u32,
        blocks: u32,
        x_stride: u32,
        y_stride: u32,
        first_row: u32,
        biased: u32,
        squares: u32,
        width: f32,
        eps: f32,
        skip: u32,
        y_first: u32,
        y_step: u32,
        scale: f32,
    }
}

/// The kernels that compute y = W x; they share params and bindings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linear {
    /// With how many tokens a block of W is used once it is decoded: 1 to 8.
    Matvec(u32),
    MatvecLane,
    /// Tokens of a tile: 32 or 64.
    Matmul(u32),
    /// Tiles of four matrices either way.
    MatmulMatrix(Matrix),
    /// Tokens of a tile: 2, 4 or 8.
    MatmulLane(u32),
}

impl Linear {
    pub const ALL: [Linear; 10] = [
        Linear::Matvec(1),
        Linear::Matvec(4),
        Linear::Matvec(8),
        Linear::MatvecLane,
        Linear::Matmul(32),
        Linear::Matmul(64),
        Linear::MatmulMatrix(Matrix::Emulated),
        Linear::MatmulLane(2),
        Linear::MatmulLane(4),
        Linear::MatmulLane(8),
    ];

    /// The kernel for this device and at most so many tokens a pass; `exact` computes in f32 throughout.
    pub fn choose(gpu: &Gpu, tokens: u32, exact: bool) -> Linear {
        let Profile { lanes, matrix, .. } = gpu.profile();
        let [a, b] = few_tokens(gpu);
        match (lanes, matrix.filter(|_| !exact)) {
            (true, _) if tokens == 1 => Linear::MatvecLane,
            (true, _) if tokens <= a => Linear::MatmulLane(a),
            (true, _) if tokens <= b => Linear::MatmulLane(b),
            (true, _) => Linear::MatmulLane(8),
            (false, _) if tokens <= a => Linear::Matvec(tokens),
            (false, _) if tokens <= b => Linear::Matmul(b),
            (false, Some(matrix)) => Linear::MatmulMatrix(matrix),
            (false, None) => Linear::Matmul(64),
        }
    }

    /// The pipeline for such weights, such an x, and what is done before and after.
    pub fn key(self, gpu: &Gpu, part: &Part, x: Element, input: Input, finish: Finish) -> KernelKey {
        let lanes = matches!(self, Linear::MatvecLane | Linear::MatmulLane(_));
        let operand: &[&str] = match x {
            Element::Bytes => &["operand/bytes.wgsl"],
            Element::F32 if lanes && gpu.profile().eights => &["operand/f32_subgroup8.wgsl", "operand/dot.wgsl"],
            Element::F32 => &["operand/f32.wgsl", "operand/dot.wgsl"],
        };
        let input = match input {
            Input::Plain => "input/plain.wgsl",
            Input::Normed { .. } => "input/normed.wgsl",
        };
        let shared = ["frame.wgsl", "linear.wgsl", part.order.file(), input];
        let key = |kernel: &[&'static str]| {
            KernelKey::new(&[format_files(part.format), &shared, operand, finish.files(), kernel])
        };
        match self {
            Linear::Matvec(tokens) => key(&[reduce(gpu), "matvec.wgsl"]).with("TOKENS", tokens),
            Linear::MatvecLane => key(&["matvec_lane.wgsl"]),
            Linear::Matmul(tokens) => key(&["matmul.wgsl"]).with("TOKENS", tokens),
            Linear::MatmulMatrix(matrix) => {
                let key = key(&["product/forward.wgsl", "matmul_matrix.wgsl"]);
                KernelKey::new(&[matrix_files(matrix), &key.files]) // `enable` comes first
            }
            Linear::MatmulLane(tokens) => key(&["matmul_lane.wgsl"]).with("TOKENS", tokens),
        }
    }

    /// (rows of W, tokens) that a workgroup covers.
    pub fn tile(self) -> (u32, u32) {
        match self {
            Linear::Matvec(tokens) => (4, tokens),
            Linear::MatvecLane => (64, 1),
            Linear::Matmul(tokens) => (64, tokens),
            Linear::MatmulMatrix(matrix) => (matrix_tile(matrix), matrix_tile(matrix)),
            Linear::MatmulLane(tokens) => (64, tokens),
        }
    }
}

/// Rows and columns of a workgroup's tile in matmul_matrix: four small matrices either way.
pub(super) fn matrix_tile(matrix: Matrix) -> u32 {
    match matrix {
        Matrix::Half16 => 64,
        Matrix::Float8 | Matrix::Emulated | Matrix::EmulatedHalves => 32,
    }
}

/// The files of one kind of small matrices.
pub(super) fn matrix_files(matrix: Matrix) -> &'static [&'static str] {
    match matrix {
        Matrix::Half16 => &["matrix/half16.wgsl", "matrix/subgroup.wgsl"],
        Matrix::Float8 => &["matrix/float8.wgsl", "matrix/subgroup.wgsl"],
        Matrix::Emulated => &["matrix/single.wgsl", "matrix/emulated.wgsl"],
        Matrix::EmulatedHalves => &["matrix/rounded.wgsl", "matrix/emulated.wgsl"],
    }
}

/// What x must still be multiplied with.
#[derive(Clone, Copy)]
pub enum Input<'a> {
    /// Nothing.
    Plain,
    /// One over its root mean square, which [`Finish::AddNorm`] left to do: the norm's gain is in x already.
    Normed { squares: &'a Squares, eps: f32 },
}

/// Sums of the squares of a row, one for each workgroup of the step that wrote it.
pub struct Squares {
    buffer: wgpu::Buffer,
    count: u32,
    /// Length of the row.
    width: u32,
}

impl Squares {
    /// For a row of `width` that a linear step of one token writes on this device.
    pub fn new(gpu: &Gpu, width: u32) -> Result<Squares> {
        let count = width.div_ceil(Linear::choose(gpu, 1, true).tile().0);
        Ok(Squares { buffer: gpu.buffer("sums of squares", count as u64 * 4)?, count, width })
    }
}

/// What becomes of the results.
#[derive(Clone, Copy)]
pub enum Finish<'a> {
    /// y = results.
    Store(&'a Tensor),
    /// y += results.
    Add(&'a Tensor),
    /// y = residual + results.
    Sum { residual: &'a Tensor, y: &'a Tensor },
    /// Some columns of y += scale * results.
    AddColumns { y: &'a Tensor, columns: Columns, scale: f32 },
    /// y = silu(even rows) * odd rows. For one token y may be of bytes.
    Swiglu(&'a Tensor),
    /// For one token: y += results; then `normed` = y * gain (f32 or bytes) and `squares`, for [`Input::Normed`].
    AddNorm { y: &'a Tensor, gain: &'a Vector, normed: &'a Tensor, squares: &'a Squares },
}

impl Finish<'_> {
    fn y(&self) -> &Tensor {
        match self {
            Finish::Store(y) | Finish::Add(y) | Finish::Swiglu(y) => y,
            Finish::Sum { y, .. } | Finish::AddColumns { y, .. } | Finish::AddNorm { y, .. } => y,
        }
    }

    fn files(&self) -> &'static [&'static str] {
        match self {
            Finish::Store(_) => &["finish/store.wgsl"],
            Finish::Add(_) => &["finish/add.wgsl"],
            Finish::Sum { .. } => &["finish/sum.wgsl"],
            Finish::AddColumns { .. } => &["finish/add_columns.wgsl"],
            Finish::Swiglu(y) if y.element == Element::Bytes => {
                &["bytes.wgsl", "silu.wgsl", "finish/swiglu_bytes.wgsl"]
            }
            Finish::Swiglu(_) => &["silu.wgsl", "finish/swiglu.wgsl"],
            Finish::AddNorm { normed, .. } if normed.element == Element::Bytes => {
                &["bytes.wgsl", "finish/add_norm_bytes.wgsl"]
            }
            Finish::AddNorm { .. } => &["finish/add_norm.wgsl"],
        }
    }
}

/// x [T, K], w [N, K], bias [N] -> y, as `finish` says; with `Rows::Last`, of row 0 of x alone.
#[allow(clippy::too_many_arguments)] // an op takes what it takes
pub fn linear(
    plan: &mut PlanBuilder,
    label: &str,
    x: &Tensor,
    input: Input,
    w: &Weight,
    bias: Option<&Vector>,
    rows: Rows,
    finish: Finish,
) -> Result<()> {
    let tokens = if rows == Rows::Last { 1 } else { plan.max_tokens };
    linear_with(plan, label, Linear::choose(&plan.gpu, tokens, plan.exact), x, input, w, bias, rows, finish)
}

/// [`linear`] by a kernel of the caller's choice.
#[allow(clippy::too_many_arguments)]
pub fn linear_with(
    plan: &mut PlanBuilder,
    label: &str,
    kernel: Linear,
    x: &Tensor,
    input: Input,
    w: &Weight,
    bias: Option<&Vector>,
    rows: Rows,
    finish: Finish,
) -> Result<()> {
    let y = finish.y();
    let (results, columns, scale) = match finish {
        Finish::Swiglu(y) => (2 * y.cols, Columns::all(y), 1.0),
        Finish::AddColumns { columns, scale, .. } => (columns.count, columns, scale),
        _ => (y.cols, Columns::all(y), 1.0),
    };
    assert!(
        x.cols == w.cols && results == w.rows && bias.is_none_or(|bias| bias.len == w.rows),
        "{label}: {} is [{}, {}], x has {}, y has {}",
        w.name,
        w.rows,
        w.cols,
        x.cols,
        y.cols
    );
    let decodes = matches!(kernel, Linear::Matvec(_) | Linear::MatvecLane);
    assert!(decodes || matches!(input, Input::Plain), "{label}: only matvec divides by the root mean square");
    let (tile_rows, tile_tokens) = kernel.tile();
    for part in &w.parts {
        let key = kernel.key(&plan.gpu, part, x.element, input, finish);
        let single_floats = key.files.contains(&"operand/f32_subgroup8.wgsl");
        let (squares, width, eps) = match input {
            Input::Plain => (0, 1.0, 0.0),
            Input::Normed { squares, eps } => (squares.count, squares.width as f32, eps),
        };
        let params = LinearParams {
            rows: part.rows,
            blocks: w.blocks(),
            x_stride: x.stride() / if single_floats { 1 } else { 4 },
            y_stride: y.stride(),
            first_row: part.first_row,
            biased: bias.is_some() as u32,
            squares,
            width,
            eps,
            skip: part.skip,
            y_first: columns.first,
            y_step: columns.step,
            scale,
        };
        let mut buffers = part.buffers();
        buffers.extend([("x", &x.buffer), ("bias", bias.map_or(&part.scales, |bias| &bias.buffer))]);
        if let Input::Normed { squares, .. } = input {
            buffers.push(("squares", &squares.buffer));
        }
        match finish {
            Finish::AddNorm { gain, .. } => buffers.push(("gain", &gain.buffer)),
            Finish::Sum { residual, .. } => buffers.push(("residual", &residual.buffer)),
            _ => {}
        }
        buffers.push(("y", &y.buffer));
        if let Finish::AddNorm { normed, squares, .. } = finish {
            buffers.extend([("normed", &normed.buffer), ("sums_of_squares", &squares.buffer)]);
        }
        let groups = part.rows.div_ceil(tile_rows);
        let grid = if rows == Rows::All { Grid::tiles(groups, tile_tokens) } else { Grid::once(groups) };
        plan.step(label, &key, params, &buffers, grid, y)?;
        plan.note(format!("[{}, {}] {}", part.rows, w.cols, part.format.name()));
        plan.cost(Cost {
            weight_bytes: part.bytes(),
            token_bytes: x.stride() as u64 * 4,
            token_flops: 2 * part.rows as u64 * w.cols as u64,
            int8: x.element == Element::Bytes,
            single: rows == Rows::Last,
            ..Cost::default()
        });
    }
    Ok(())
}
