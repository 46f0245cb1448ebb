//! Parameters: the tensors that learn, with their gradients and moments, all f32 on the GPU.

use super::options::Optimizer;
use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::kernels::optimizer::{Rates, Region, adamw, sgd, sum_of_squares, sums_of};
use crate::model::Model;
use crate::model::weights::PROJECTION;
use crate::plan::{Plan, PlanBuilder};
use crate::tensor::{Element, Tensor};
use crate::weight::{Vector, Weight};
use std::collections::HashMap;

/// A buffer of the model that learns, and what belongs to it: all of one shape [rows, cols].
pub struct Master {
    pub w: Tensor,
    pub gradient: Tensor,
    /// AdamW's means and squares, or SGD's momenta.
    pub moments: Vec<Tensor>,
    /// Where its rows begin in the matrix that it is a part of.
    pub first_row: u32,
}

/// One tensor that learns, under the name that it has in a file.
pub struct Parameter {
    pub name: String,
    /// In GGUF's order: shape[0] is the length of a row.
    pub shape: Vec<u64>,
    /// It is drawn towards zero: matrices are, gains and biases not.
    pub decays: bool,
    pieces: Vec<Piece>,
}

/// The parameter's share of one master.
struct Piece {
    master: (String, usize),
    region: Region,
    cols: u32,
}

/// What of a parameter is read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    Weights,
    Gradient,
    /// The first or second moment.
    Moment(usize),
}

/// All that learns. Masters are found by the name of the weight or vector that they are: "blk.0.attn_qkv.weight".
#[derive(Default)]
pub struct Parameters {
    masters: HashMap<String, Vec<Master>>,
    list: Vec<Parameter>,
    moments: usize,
}

impl Parameters {
    /// All matrices, gains and biases of a model of masters whose tensors `chosen` takes, by their names in a file.
    pub fn of_model(model: &Model, moments: usize, chosen: &dyn Fn(&str) -> bool) -> Result<Parameters> {
        let (gpu, config, w) = (model.gpu(), model.config(), model.weights());
        let mut all = Parameters { moments, ..Parameters::default() };
        let chosen: &dyn Fn(&str) -> bool = &|name| chosen(name) && w.names.contains(name);
        let (c, d, v) = (config.embedding_length, config.head_size, config.vocab_size);
        match &w.projection {
            // the donor's embeddings stay as they are
            Some(projection) => all.matrix(gpu, PROJECTION, projection, &[(PROJECTION.into(), c)], &|_| true)?,
            None => all.matrix(gpu, "token_embd.weight", &w.token_embd, &[("token_embd.weight".into(), v)], chosen)?,
        }
        for (b, block) in w.blocks.iter().enumerate() {
            let (q, kv, f) = (config.q_length(b), config.kv_length(b), config.feed_forward[b]);
            let name = |what: &str| format!("blk.{b}.{what}");
            let parts = |parts: &[(&str, u32)], kind: &str| -> Vec<(String, u32)> {
                parts.iter().map(|(part, rows)| (format!("blk.{b}.{part}.{kind}"), *rows)).collect()
            };
            all.vector(gpu, &name("attn_norm.weight"), &block.attn_norm, &[(name("attn_norm.weight"), c)], chosen)?;
            for (norm, gain) in [("attn_q_norm", &block.attn_q_norm), ("attn_k_norm", &block.attn_k_norm)] {
                if let Some(gain) = gain {
                    let name = name(&format!("{norm}.weight"));
                    all.vector(gpu, &name, gain, &[(name.clone(), d)], chosen)?;
                }
            }
            all.vector(gpu, &name("ffn_norm.weight"), &block.ffn_norm, &[(name("ffn_norm.weight"), c)], chosen)?;
            let affines = [
                ("attn_qkv", &block.attn_qkv, &[("attn_q", q), ("attn_k", kv), ("attn_v", kv)][..]),
                ("attn_output", &block.attn_output, &[("attn_output", c)]),
                ("ffn_gate_up", &block.ffn_gate_up.affine, &[("ffn_gate", f), ("ffn_up", f)]),
                ("ffn_down", &block.ffn_down, &[("ffn_down", c)]),
            ];
            for (fused, affine, of) in affines {
                let weight_name = name(&format!("{fused}.weight"));
                all.matrix(gpu, &weight_name, &affine.weight, &parts(of, "weight"), chosen)?;
                if let Some(bias) = &affine.bias {
                    all.vector(gpu, &name(&format!("{fused}.bias")), bias, &parts(of, "bias"), chosen)?;
                }
            }
        }
        all.vector(gpu, "output_norm.weight", &w.output_norm, &[("output_norm.weight".into(), c)], chosen)?;
        if let Some(output) = &w.output {
            all.matrix(gpu, "output.weight", output, &[("output.weight".into(), v)], chosen)?;
        }
        Ok(all)
    }

    /// The adapters of a model.
    pub fn of_adapters(model: &Model, moments: usize) -> Result<Parameters> {
        let mut all = Parameters { moments, ..Parameters::default() };
        for adapter in model.adapters().into_iter().flat_map(|adapters| adapters.blocks.iter().flatten()) {
            for w in [&adapter.a, &adapter.b] {
                all.matrix(model.gpu(), &w.name, w, &[(w.name.clone(), w.rows)], &|_| true)?;
            }
        }
        Ok(all)
    }

    /// A matrix and the tensors whose rows it holds, one after another.
    fn matrix(
        &mut self,
        gpu: &Gpu,
        name: &str,
        w: &Weight,
        tensors: &[(String, u32)],
        chosen: &dyn Fn(&str) -> bool,
    ) -> Result<()> {
        if !tensors.iter().any(|(tensor, _)| chosen(tensor)) {
            return Ok(());
        }
        let mut masters = Vec::new();
        for part in &w.parts {
            let buffer = part.quants.clone();
            let w = Tensor { buffer, rows: part.rows, cols: w.cols, element: Element::F32 };
            masters.push(self.master(gpu, name, w, part.first_row)?);
        }
        let mut first = 0;
        for (tensor, rows) in tensors {
            let view = w.rows(first, *rows);
            let piece = |part: &crate::weight::Part| {
                let i = masters.iter().rposition(|master| master.first_row <= first + part.first_row).unwrap_or(0);
                let region = Region::rows(&masters[i].w, part.skip, part.rows);
                Piece { master: (name.into(), i), region, cols: w.cols }
            };
            if chosen(tensor) {
                let pieces = view.parts.iter().map(piece).collect();
                let shape = vec![w.cols as u64, *rows as u64];
                self.list.push(Parameter { name: tensor.clone(), shape, decays: true, pieces });
            }
            first += rows;
        }
        self.masters.insert(name.into(), masters);
        Ok(())
    }

    /// A vector and the tensors that it holds, one after another.
    fn vector(
        &mut self,
        gpu: &Gpu,
        name: &str,
        vector: &Vector,
        tensors: &[(String, u32)],
        chosen: &dyn Fn(&str) -> bool,
    ) -> Result<()> {
        if !tensors.iter().any(|(tensor, _)| chosen(tensor)) {
            return Ok(());
        }
        let w = Tensor { buffer: vector.buffer.clone(), rows: 1, cols: vector.len, element: Element::F32 };
        let mut first = 0u32;
        for (tensor, len) in tensors {
            if !first.is_multiple_of(4) {
                let what = format!("training {tensor}, which does not begin at a multiple of 4 of {name}");
                return Err(Error::Unsupported { what, hint: "Choose the tensors to train without it".into() });
            }
            if chosen(tensor) {
                let region = Region { first: first / 4, rows: 1, vectors: len.div_ceil(4) };
                let pieces = vec![Piece { master: (name.into(), 0), region, cols: *len }];
                self.list.push(Parameter { name: tensor.clone(), shape: vec![*len as u64], decays: false, pieces });
            }
            first += len;
        }
        let master = self.master(gpu, name, w, 0)?;
        self.masters.insert(name.into(), vec![master]);
        Ok(())
    }

    fn master(&self, gpu: &Gpu, name: &str, w: Tensor, first_row: u32) -> Result<Master> {
        let like = |what: &str| Tensor::new(gpu, &format!("{name}, {what}"), w.rows, w.cols);
        let gradient = like("gradient")?;
        let moments = (0..self.moments).map(|_| like("moment")).collect::<Result<_>>()?;
        Ok(Master { w, gradient, moments, first_row })
    }

    /// The masters of a weight or vector; None if it does not learn.
    pub fn masters(&self, name: &str) -> Option<&[Master]> {
        self.masters.get(name).map(Vec::as_slice)
    }

    pub fn list(&self) -> &[Parameter] {
        &self.list
    }

    /// Numbers that learn.
    pub fn count(&self) -> u64 {
        self.list.iter().map(|parameter| parameter.shape.iter().product::<u64>()).sum()
    }

    /// Makes all gradients zero.
    pub(super) fn clear_gradients(&self, encoder: &mut wgpu::CommandEncoder) {
        self.masters.values().flatten().for_each(|master| encoder.clear_buffer(&master.gradient.buffer, 0, None));
    }

    /// The plan that leaves the gradients' sums of squares in a buffer of so many.
    pub(super) fn norm_plan(&self, gpu: &Gpu) -> Result<(Plan, wgpu::Buffer, u32)> {
        let pieces = || self.list.iter().flat_map(|parameter| parameter.pieces.iter().map(move |p| (parameter, p)));
        let count: u32 = pieces().map(|(_, piece)| sums_of(piece.region)).sum();
        let sums = gpu.buffer("sums of squares", count as u64 * 4)?;
        let mut plan = PlanBuilder::new(gpu, 1);
        let mut slot = 0;
        for (parameter, piece) in pieces() {
            let gradient = &self.of(piece).gradient;
            sum_of_squares(&mut plan, &format!("{}.norm", parameter.name), gradient, piece.region, &sums, slot)?;
            slot += sums_of(piece.region);
        }
        Ok((plan.finish("norm")?, sums, count))
    }

    /// The optimizer's step, whose numbers are in `rates`.
    pub(super) fn update_plan(&self, gpu: &Gpu, optimizer: Optimizer, rates: &wgpu::Buffer) -> Result<Plan> {
        let mut plan = PlanBuilder::new(gpu, 1);
        for parameter in &self.list {
            for piece in &parameter.pieces {
                let Master { w, gradient, moments, .. } = self.of(piece);
                let (name, decays) = (&parameter.name, parameter.decays);
                match optimizer {
                    Optimizer::AdamW(_) => {
                        let [means, squares] = [&moments[0], &moments[1]];
                        adamw(&mut plan, name, rates, piece.region, decays, gradient, w, means, squares)?;
                    }
                    Optimizer::Sgd { .. } => {
                        sgd(&mut plan, name, rates, piece.region, decays, gradient, w, &moments[0])?
                    }
                }
            }
        }
        plan.finish("update")
    }

    pub(super) fn rates_buffer(gpu: &Gpu) -> Result<wgpu::Buffer> {
        gpu.buffer("rates", size_of::<Rates>() as u64)
    }

    /// A parameter's numbers [rows, cols].
    pub async fn read(&self, gpu: &Gpu, parameter: &Parameter, of: Of) -> Result<Vec<f32>> {
        let mut values = Vec::new();
        for piece in &parameter.pieces {
            let tensor = self.tensor(piece, of);
            let stride = tensor.stride() as usize;
            let (rows, cols) = (piece.region.rows as usize, piece.cols as usize);
            let floats = (rows - 1) * stride + cols;
            let bytes = gpu.read(&tensor.buffer, piece.region.first as u64 * 16, floats as u64 * 4).await?;
            let floats: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
            floats.chunks(stride).for_each(|row| values.extend_from_slice(&row[..cols]));
        }
        Ok(values)
    }

    /// Sets a parameter's numbers [rows, cols].
    ///
    /// # Errors
    /// [`Error::Argument`] if they are not as many as the parameter has.
    pub fn write(&self, gpu: &Gpu, parameter: &Parameter, of: Of, values: &[f32]) -> Result<()> {
        let count = parameter.shape.iter().product::<u64>();
        if values.len() as u64 != count {
            let (what, expected) = (format!("numbers of {}", parameter.name), count.to_string());
            return Err(Error::Argument { what, expected, got: values.len().to_string() });
        }
        let mut rest = values;
        for piece in &parameter.pieces {
            let tensor = self.tensor(piece, of);
            let (stride, cols) = (tensor.stride() as u64, piece.cols as usize);
            let (rows, after) = rest.split_at(piece.region.rows as usize * cols);
            rest = after;
            for (i, row) in rows.chunks(cols).enumerate() {
                let at = piece.region.first as u64 * 16 + i as u64 * stride * 4;
                gpu.queue().write_buffer(&tensor.buffer, at, bytemuck::cast_slice(row));
            }
            gpu.queue().submit([]);
            gpu.wait()?; // so that no more than one piece is staged
        }
        Ok(())
    }

    fn of(&self, piece: &Piece) -> &Master {
        &self.masters[&piece.master.0][piece.master.1]
    }

    fn tensor(&self, piece: &Piece, of: Of) -> &Tensor {
        let master = self.of(piece);
        match of {
            Of::Weights => &master.w,
            Of::Gradient => &master.gradient,
            Of::Moment(i) => &master.moments[i],
        }
    }
}
