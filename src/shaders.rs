//! Every WGSL file of the crate, by its path below `shaders/`. A pipeline is a list of whole files, put one after another.

use crate::formats::Format;

/// (path, text)
pub const FILES: &[(&str, &str)] = &[
    ("adamw.wgsl", include_str!("../shaders/adamw.wgsl")),
    ("add.wgsl", include_str!("../shaders/add.wgsl")),
    ("add_bias_backward.wgsl", include_str!("../shaders/add_bias_backward.wgsl")),
    ("attend/direct.wgsl", include_str!("../shaders/attend/direct.wgsl")),
    ("attend/dqkv_lane.wgsl", include_str!("../shaders/attend/dqkv_lane.wgsl")),
    ("attend/eight.wgsl", include_str!("../shaders/attend/eight.wgsl")),
    ("attend/joined.wgsl", include_str!("../shaders/attend/joined.wgsl")),
    ("attend/params.wgsl", include_str!("../shaders/attend/params.wgsl")),
    ("attend/sequence.wgsl", include_str!("../shaders/attend/sequence.wgsl")),
    ("attend/sequence_lane.wgsl", include_str!("../shaders/attend/sequence_lane.wgsl")),
    ("attend/sequence_params.wgsl", include_str!("../shaders/attend/sequence_params.wgsl")),
    ("attend/subgroup8.wgsl", include_str!("../shaders/attend/subgroup8.wgsl")),
    ("attention.wgsl", include_str!("../shaders/attention.wgsl")),
    ("attention_dkv.wgsl", include_str!("../shaders/attention_dkv.wgsl")),
    ("attention_dkv_lane.wgsl", include_str!("../shaders/attention_dkv_lane.wgsl")),
    ("attention_dq.wgsl", include_str!("../shaders/attention_dq.wgsl")),
    ("attention_dq_lane.wgsl", include_str!("../shaders/attention_dq_lane.wgsl")),
    ("attention_lane.wgsl", include_str!("../shaders/attention_lane.wgsl")),
    ("attention_merge.wgsl", include_str!("../shaders/attention_merge.wgsl")),
    ("attention_sequence.wgsl", include_str!("../shaders/attention_sequence.wgsl")),
    ("attention_sequence_lane.wgsl", include_str!("../shaders/attention_sequence_lane.wgsl")),
    ("attention_tile.wgsl", include_str!("../shaders/attention_tile.wgsl")),
    ("attention_token.wgsl", include_str!("../shaders/attention_token.wgsl")),
    ("backward/dw.wgsl", include_str!("../shaders/backward/dw.wgsl")),
    ("backward/dx.wgsl", include_str!("../shaders/backward/dx.wgsl")),
    ("bytes.wgsl", include_str!("../shaders/bytes.wgsl")),
    ("cross_entropy.wgsl", include_str!("../shaders/cross_entropy.wgsl")),
    ("cross_entropy_backward.wgsl", include_str!("../shaders/cross_entropy_backward.wgsl")),
    ("dot_bytes.wgsl", include_str!("../shaders/dot_bytes.wgsl")),
    ("draw.wgsl", include_str!("../shaders/draw.wgsl")),
    ("dropout.wgsl", include_str!("../shaders/dropout.wgsl")),
    ("embed.wgsl", include_str!("../shaders/embed.wgsl")),
    ("embed_backward.wgsl", include_str!("../shaders/embed_backward.wgsl")),
    ("finish/add.wgsl", include_str!("../shaders/finish/add.wgsl")),
    ("finish/add_columns.wgsl", include_str!("../shaders/finish/add_columns.wgsl")),
    ("finish/add_norm.wgsl", include_str!("../shaders/finish/add_norm.wgsl")),
    ("finish/add_norm_bytes.wgsl", include_str!("../shaders/finish/add_norm_bytes.wgsl")),
    ("finish/store.wgsl", include_str!("../shaders/finish/store.wgsl")),
    ("finish/sum.wgsl", include_str!("../shaders/finish/sum.wgsl")),
    ("finish/swiglu.wgsl", include_str!("../shaders/finish/swiglu.wgsl")),
    ("finish/swiglu_bytes.wgsl", include_str!("../shaders/finish/swiglu_bytes.wgsl")),
    ("formats/bf16.wgsl", include_str!("../shaders/formats/bf16.wgsl")),
    ("formats/block.wgsl", include_str!("../shaders/formats/block.wgsl")),
    ("formats/f16.wgsl", include_str!("../shaders/formats/f16.wgsl")),
    ("formats/f32.wgsl", include_str!("../shaders/formats/f32.wgsl")),
    ("formats/fifth.wgsl", include_str!("../shaders/formats/fifth.wgsl")),
    ("formats/halves.wgsl", include_str!("../shaders/formats/halves.wgsl")),
    ("formats/packed.wgsl", include_str!("../shaders/formats/packed.wgsl")),
    ("formats/q4_0.wgsl", include_str!("../shaders/formats/q4_0.wgsl")),
    ("formats/q4_1.wgsl", include_str!("../shaders/formats/q4_1.wgsl")),
    ("formats/q4_k.wgsl", include_str!("../shaders/formats/q4_k.wgsl")),
    ("formats/q5_0.wgsl", include_str!("../shaders/formats/q5_0.wgsl")),
    ("formats/q5_1.wgsl", include_str!("../shaders/formats/q5_1.wgsl")),
    ("formats/q5_k.wgsl", include_str!("../shaders/formats/q5_k.wgsl")),
    ("formats/q6_k.wgsl", include_str!("../shaders/formats/q6_k.wgsl")),
    ("formats/q8_0.wgsl", include_str!("../shaders/formats/q8_0.wgsl")),
    ("formats/scale_min.wgsl", include_str!("../shaders/formats/scale_min.wgsl")),
    ("formats/scale_words.wgsl", include_str!("../shaders/formats/scale_words.wgsl")),
    ("frame.wgsl", include_str!("../shaders/frame.wgsl")),
    ("heads_norm_backward.wgsl", include_str!("../shaders/heads_norm_backward.wgsl")),
    ("input/normed.wgsl", include_str!("../shaders/input/normed.wgsl")),
    ("input/plain.wgsl", include_str!("../shaders/input/plain.wgsl")),
    ("kv/f16.wgsl", include_str!("../shaders/kv/f16.wgsl")),
    ("kv/f32.wgsl", include_str!("../shaders/kv/f32.wgsl")),
    ("kv/q8_0.wgsl", include_str!("../shaders/kv/q8_0.wgsl")),
    ("kv/q8_0_read.wgsl", include_str!("../shaders/kv/q8_0_read.wgsl")),
    ("kv/q8_0_write.wgsl", include_str!("../shaders/kv/q8_0_write.wgsl")),
    ("kv/read.wgsl", include_str!("../shaders/kv/read.wgsl")),
    ("kv/write.wgsl", include_str!("../shaders/kv/write.wgsl")),
    ("linear.wgsl", include_str!("../shaders/linear.wgsl")),
    ("matmul.wgsl", include_str!("../shaders/matmul.wgsl")),
    ("matmul_dw.wgsl", include_str!("../shaders/matmul_dw.wgsl")),
    ("matmul_dw_lane.wgsl", include_str!("../shaders/matmul_dw_lane.wgsl")),
    ("matmul_dx.wgsl", include_str!("../shaders/matmul_dx.wgsl")),
    ("matmul_dx_lane.wgsl", include_str!("../shaders/matmul_dx_lane.wgsl")),
    ("matmul_lane.wgsl", include_str!("../shaders/matmul_lane.wgsl")),
    ("matmul_matrix.wgsl", include_str!("../shaders/matmul_matrix.wgsl")),
    ("matrix/emulated.wgsl", include_str!("../shaders/matrix/emulated.wgsl")),
    ("matrix/float8.wgsl", include_str!("../shaders/matrix/float8.wgsl")),
    ("matrix/half16.wgsl", include_str!("../shaders/matrix/half16.wgsl")),
    ("matrix/rounded.wgsl", include_str!("../shaders/matrix/rounded.wgsl")),
    ("matrix/single.wgsl", include_str!("../shaders/matrix/single.wgsl")),
    ("matrix/subgroup.wgsl", include_str!("../shaders/matrix/subgroup.wgsl")),
    ("matvec.wgsl", include_str!("../shaders/matvec.wgsl")),
    ("matvec_lane.wgsl", include_str!("../shaders/matvec_lane.wgsl")),
    ("multiply_add.wgsl", include_str!("../shaders/multiply_add.wgsl")),
    ("operand/bytes.wgsl", include_str!("../shaders/operand/bytes.wgsl")),
    ("operand/dot.wgsl", include_str!("../shaders/operand/dot.wgsl")),
    ("operand/f32.wgsl", include_str!("../shaders/operand/f32.wgsl")),
    ("operand/f32_subgroup8.wgsl", include_str!("../shaders/operand/f32_subgroup8.wgsl")),
    ("optimizer.wgsl", include_str!("../shaders/optimizer.wgsl")),
    ("order/panels.wgsl", include_str!("../shaders/order/panels.wgsl")),
    ("order/rows.wgsl", include_str!("../shaders/order/rows.wgsl")),
    ("peaks.wgsl", include_str!("../shaders/peaks.wgsl")),
    ("product/dw.wgsl", include_str!("../shaders/product/dw.wgsl")),
    ("product/dx.wgsl", include_str!("../shaders/product/dx.wgsl")),
    ("product/forward.wgsl", include_str!("../shaders/product/forward.wgsl")),
    ("quantize.wgsl", include_str!("../shaders/quantize.wgsl")),
    ("reduce/shared.wgsl", include_str!("../shaders/reduce/shared.wgsl")),
    ("reduce/subgroup.wgsl", include_str!("../shaders/reduce/subgroup.wgsl")),
    ("rms_norm.wgsl", include_str!("../shaders/rms_norm.wgsl")),
    ("rms_norm_backward.wgsl", include_str!("../shaders/rms_norm_backward.wgsl")),
    ("rms_norm_dgain.wgsl", include_str!("../shaders/rms_norm_dgain.wgsl")),
    ("rope.wgsl", include_str!("../shaders/rope.wgsl")),
    ("rope/turned.wgsl", include_str!("../shaders/rope/turned.wgsl")),
    ("rope_backward.wgsl", include_str!("../shaders/rope_backward.wgsl")),
    ("rope_kv.wgsl", include_str!("../shaders/rope_kv.wgsl")),
    ("row_scale.wgsl", include_str!("../shaders/row_scale.wgsl")),
    ("sample.wgsl", include_str!("../shaders/sample.wgsl")),
    ("sampling.wgsl", include_str!("../shaders/sampling.wgsl")),
    ("sgd.wgsl", include_str!("../shaders/sgd.wgsl")),
    ("silu.wgsl", include_str!("../shaders/silu.wgsl")),
    ("softmax.wgsl", include_str!("../shaders/softmax.wgsl")),
    ("source/joined.wgsl", include_str!("../shaders/source/joined.wgsl")),
    ("source/plain.wgsl", include_str!("../shaders/source/plain.wgsl")),
    ("statistics.wgsl", include_str!("../shaders/statistics.wgsl")),
    ("stream.wgsl", include_str!("../shaders/stream.wgsl")),
    ("sum_of_squares.wgsl", include_str!("../shaders/sum_of_squares.wgsl")),
    ("swiglu.wgsl", include_str!("../shaders/swiglu.wgsl")),
    ("swiglu_backward.wgsl", include_str!("../shaders/swiglu_backward.wgsl")),
];

/// The files that define `decode` for a weight format.
pub fn format_files(format: Format) -> &'static [&'static str] {
    macro_rules! packed {
        ($($file:literal),*) => { &["formats/block.wgsl", "formats/packed.wgsl", $($file),*] };
    }
    match format {
        Format::F32 => &["formats/block.wgsl", "formats/f32.wgsl"],
        Format::F16 => &["formats/block.wgsl", "formats/halves.wgsl", "formats/f16.wgsl"],
        Format::BF16 => &["formats/block.wgsl", "formats/halves.wgsl", "formats/bf16.wgsl"],
        Format::Q4_0 => packed!("formats/scale_words.wgsl", "formats/q4_0.wgsl"),
        Format::Q4_1 => packed!("formats/scale_words.wgsl", "formats/q4_1.wgsl"),
        Format::Q5_0 => packed!("formats/scale_words.wgsl", "formats/fifth.wgsl", "formats/q5_0.wgsl"),
        Format::Q5_1 => packed!("formats/scale_words.wgsl", "formats/fifth.wgsl", "formats/q5_1.wgsl"),
        Format::Q8_0 => packed!("formats/scale_words.wgsl", "formats/q8_0.wgsl"),
        Format::Q4_K => packed!("formats/scale_min.wgsl", "formats/q4_k.wgsl"),
        Format::Q5_K => packed!("formats/fifth.wgsl", "formats/scale_min.wgsl", "formats/q5_k.wgsl"),
        Format::Q6_K => packed!("formats/scale_words.wgsl", "formats/q6_k.wgsl"),
    }
}

/// The text of one file. Asking for a file that is not in the table is a mistake in this crate.
pub fn text(path: &str) -> &'static str {
    FILES.iter().find(|file| file.0 == path).unwrap_or_else(|| panic!("no shader file {path}")).1
}

/// The text of a pipeline: its files, one after another.
pub fn link(files: &[&str]) -> String {
    files.iter().flat_map(|file| [text(file), "\n"]).collect()
}

/// The same for browsers, which want the use of subgroups declared, where wgpu refuses the declaration.
pub fn link_for_browsers(files: &[&str]) -> String {
    // These hand keys round in loops whose ends come from memory: the same for all lanes, which a compiler cannot know.
    let uniform = files.contains(&"attend/subgroup8.wgsl");
    let directive = if uniform { "diagnostic(off, subgroup_uniformity);\n" } else { "" };
    format!("enable subgroups;\n{directive}{}", link(files))
}
