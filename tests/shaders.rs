//! The WGSL files against what Rust believes of them: every kernel links to valid WGSL, its bind layout and its params
//! are what naga sees, and every file is used. Needs no GPU.

use naga::valid::{Capabilities, ValidationFlags, Validator};
use naga::{AddressSpace, StorageAccess, TypeInner};
use peregrine::kernel::{BindingKind, KernelKey, Params, read_bindings};
use peregrine::kernels::*;
use peregrine::{formats::Format, shaders};
use std::collections::HashSet;

type Fields = &'static [(&'static str, &'static str)];

/// Every pipeline that the crate can make, and the params that Rust gives it.
fn all_kernels() -> Vec<(KernelKey, Fields)> {
    let reduces = ["reduce/shared.wgsl", "reduce/subgroup.wgsl"];
    let kvs: [(&[&str], &[&str]); 3] = [
        (&["kv/f16.wgsl", "kv/read.wgsl"], &["kv/f16.wgsl", "kv/write.wgsl"]),
        (&["kv/f32.wgsl", "kv/read.wgsl"], &["kv/f32.wgsl", "kv/write.wgsl"]),
        (&["kv/q8_0.wgsl", "kv/q8_0_read.wgsl"], &["bytes.wgsl", "kv/q8_0.wgsl", "kv/q8_0_write.wgsl"]),
    ];
    let mut all: Vec<(KernelKey, Fields)> = Vec::new();
    let mut add = |parts: &[&[&'static str]], fields: Fields| all.push((KernelKey::new(parts), fields));
    add(&[&["add.wgsl"]], add::AddParams::FIELDS);
    add(&[&["silu.wgsl", "swiglu.wgsl"]], swiglu::SwigluParams::FIELDS);
    add(&[&["cross_entropy_backward.wgsl"]], cross_entropy::CrossEntropyBackwardParams::FIELDS);
    add(&[&["rope_backward.wgsl"]], rope_backward::RopeBackwardParams::FIELDS);
    add(&[&["rope/turned.wgsl", "rope.wgsl"]], rope::RopeParams::FIELDS);
    add(&[&["dropout.wgsl"]], dropout::DropoutParams::FIELDS);
    for kernel in ["adamw.wgsl", "sgd.wgsl"] {
        add(&[&["frame.wgsl", "optimizer.wgsl", kernel]], optimizer::OptimizerParams::FIELDS);
    }
    add(&[&["frame.wgsl", "embed_backward.wgsl"]], embed_backward::EmbedBackwardParams::FIELDS);
    add(&[&["swiglu_backward.wgsl"]], swiglu_backward::SwigluBackwardParams::FIELDS);
    add(&[&["frame.wgsl", "add_bias_backward.wgsl"]], add_bias_backward::AddBiasBackwardParams::FIELDS);
    add(&[&["frame.wgsl", "rms_norm_dgain.wgsl"]], rms_norm_backward::RmsNormDgainParams::FIELDS);
    for kernel in ["matmul_dw.wgsl", "matmul_dw_lane.wgsl"] {
        add(&[&["frame.wgsl", "backward/dw.wgsl", kernel]], matmul_dw::MatmulDwParams::FIELDS);
    }
    add(&[&["bytes.wgsl", "source/plain.wgsl", "quantize.wgsl"]], quantize::QuantizeParams::FIELDS);
    let joined = ["frame.wgsl", "bytes.wgsl", "source/joined.wgsl", "attend/joined.wgsl", "quantize.wgsl"];
    add(&[&joined], quantize::QuantizeJoinedParams::FIELDS);
    add(&[&["multiply_add.wgsl"]], multiply_add::MultiplyAddParams::FIELDS);
    add(&[&["dot_bytes.wgsl"]], dot_bytes::DotBytesParams::FIELDS);
    add(&[&["stream.wgsl"]], stream::StreamParams::FIELDS);
    add(&[&["sampling.wgsl", "peaks.wgsl"]], sample::SampleParams::FIELDS);
    add(&[&["frame.wgsl", "attend/joined.wgsl", "attention_merge.wgsl"]], attention::AttentionMergeParams::FIELDS);
    for reduce in reduces {
        add(&[&["frame.wgsl", reduce, "rms_norm.wgsl"]], rms_norm::RmsNormParams::FIELDS);
        add(&[&[reduce, "rms_norm_backward.wgsl"]], rms_norm_backward::RmsNormBackwardParams::FIELDS);
        add(&[&[reduce, "cross_entropy.wgsl"]], cross_entropy::CrossEntropyParams::FIELDS);
        for kernel in ["attention_sequence.wgsl", "attention_dq.wgsl", "attention_dkv.wgsl"] {
            let fields = attention_backward::AttentionSequenceParams::FIELDS;
            add(&[&[reduce, "attend/sequence_params.wgsl", "attend/sequence.wgsl", kernel]], fields);
        }
        let fields = heads_norm_backward::HeadsNormBackwardParams::FIELDS;
        add(&[&[reduce, "heads_norm_backward.wgsl"]], fields);
        add(&[&[reduce, "sum_of_squares.wgsl"]], optimizer::SumOfSquaresParams::FIELDS);
        add(&[&[reduce, "softmax.wgsl"]], softmax::SoftmaxParams::FIELDS);
        add(&[&[reduce, "statistics.wgsl"]], statistics::StatisticsParams::FIELDS);
        add(&[&["frame.wgsl", reduce, "sampling.wgsl", "draw.wgsl", "sample.wgsl"]], sample::SampleParams::FIELDS);
    }
    let fields = attention_backward::AttentionSequenceParams::FIELDS;
    let shared = ["frame.wgsl", "attend/sequence_params.wgsl", "attend/sequence_lane.wgsl", "attend/eight.wgsl"];
    for spread in ["attend/direct.wgsl", "attend/subgroup8.wgsl"] {
        add(&[&shared, &[spread, "attention_sequence_lane.wgsl"]], fields);
        for kernel in ["attention_dq_lane.wgsl", "attention_dkv_lane.wgsl"] {
            add(&[&shared, &[spread, "attend/dqkv_lane.wgsl", kernel]], fields);
        }
    }
    for (reading, writing) in kvs {
        let shared = [&["frame.wgsl"], reading, &["attend/params.wgsl"]].concat();
        let fields = attention::AttentionParams::FIELDS;
        reduces.iter().for_each(|reduce| add(&[&shared, &[reduce, "attention.wgsl"]], fields));
        add(&[&shared, &["attention_tile.wgsl"]], fields);
        add(&[&shared, &["attention_token.wgsl"]], fields);
        for spread in ["attend/direct.wgsl", "attend/subgroup8.wgsl"] {
            add(&[&shared, &[spread, "attend/eight.wgsl", "attention_lane.wgsl"]], fields);
        }
        add(&[&["frame.wgsl"], writing, &["rope/turned.wgsl", "rope_kv.wgsl"]], rope_kv::RopeKvParams::FIELDS);
    }
    let floats: [&[&str]; 2] =
        [&["operand/f32.wgsl", "operand/dot.wgsl"], &["operand/f32_subgroup8.wgsl", "operand/dot.wgsl"]];
    let bytes: &[&str] = &["operand/bytes.wgsl"];
    let finishes: [&[&str]; 8] = [
        &["finish/store.wgsl"],
        &["finish/add.wgsl"],
        &["finish/sum.wgsl"],
        &["finish/add_columns.wgsl"],
        &["silu.wgsl", "finish/swiglu.wgsl"],
        &["finish/add_norm.wgsl"],
        &["bytes.wgsl", "silu.wgsl", "finish/swiglu_bytes.wgsl"],
        &["bytes.wgsl", "finish/add_norm_bytes.wgsl"],
    ];
    let orders = ["order/rows.wgsl", "order/panels.wgsl"];
    let matrices: [&[&str]; 4] = [
        &["matrix/single.wgsl", "matrix/emulated.wgsl"],
        &["matrix/rounded.wgsl", "matrix/emulated.wgsl"],
        &["matrix/float8.wgsl", "matrix/subgroup.wgsl"],
        &["matrix/half16.wgsl", "matrix/subgroup.wgsl"],
    ];
    for matrix in matrices {
        let backward = ["frame.wgsl", "backward/dw.wgsl", "product/dw.wgsl", "matmul_matrix.wgsl"];
        add(&[matrix, &backward], matmul_dw::MatmulDwParams::FIELDS);
    }
    reduces.iter().for_each(|reduce| add(&[&[*reduce, "row_scale.wgsl"]], row_scale::RowScaleParams::FIELDS));
    for format in Format::ALL {
        let files = shaders::format_files(format);
        let fields = linear::LinearParams::FIELDS;
        for order in orders {
            add(&[files, &[order, "embed.wgsl"]], embed::EmbedParams::FIELDS);
            for kernel in ["matmul_dx.wgsl", "matmul_dx_lane.wgsl"] {
                add(&[files, &["frame.wgsl", order, "backward/dx.wgsl", kernel]], matmul_dx::MatmulDxParams::FIELDS);
            }
            for matrix in matrices {
                let backward = ["frame.wgsl", order, "backward/dx.wgsl", "product/dx.wgsl", "matmul_matrix.wgsl"];
                add(&[matrix, files, &backward], matmul_dx::MatmulDxParams::FIELDS);
            }
        }
        for (i, finish) in finishes.into_iter().enumerate() {
            for input in ["input/plain.wgsl", "input/normed.wgsl"] {
                let shared = ["frame.wgsl", "linear.wgsl", "order/rows.wgsl", input];
                for reduce in if i < 6 { &reduces[..] } else { &[] } {
                    add(&[files, &shared, floats[0], finish, &[reduce, "matvec.wgsl"]], fields);
                }
                let panels = ["frame.wgsl", "linear.wgsl", "order/panels.wgsl", input];
                for operand in floats.into_iter().chain((format.block_weights() > 1).then_some(bytes)) {
                    add(&[files, &shared, operand, finish, &["matvec_lane.wgsl"]], fields);
                    add(&[files, &panels, operand, finish, &["matvec_lane.wgsl"]], fields);
                }
                if i < 5 && input == "input/plain.wgsl" {
                    add(&[files, &shared, floats[0], finish, &["matmul.wgsl"]], fields);
                    for matrix in matrices {
                        add(
                            &[
                                matrix,
                                files,
                                &shared,
                                floats[0],
                                finish,
                                &["product/forward.wgsl", "matmul_matrix.wgsl"],
                            ],
                            fields,
                        );
                    }
                    for operand in floats {
                        add(&[files, &shared, operand, finish, &["matmul_lane.wgsl"]], fields);
                        add(&[files, &panels, operand, finish, &["matmul_lane.wgsl"]], fields);
                    }
                }
            }
        }
    }
    all
}

/// What is wrong with one kernel, if anything.
fn faults(key: &KernelKey, fields: Fields) -> Vec<String> {
    let wgsl = shaders::link(&key.files);
    let module = match naga::front::wgsl::parse_str(&wgsl) {
        Ok(module) => module,
        Err(e) => return vec![e.emit_to_string(&wgsl)],
    };
    let mut faults = Vec::new();
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
    if let Err(e) = validator.validate(&module) {
        faults.push(format!("{e:?}"));
    }
    if !module.entry_points.iter().any(|entry| entry.name == key.name()) || module.entry_points.len() != 1 {
        faults.push("the one entry point does not bear the file's name".into());
    }

    let mut seen = Vec::new();
    for (_, variable) in module.global_variables.iter() {
        let Some(binding) = &variable.binding else { continue };
        let kind = match variable.space {
            AddressSpace::Uniform => BindingKind::Uniform,
            AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => BindingKind::ReadWrite,
            _ => BindingKind::Read,
        };
        seen.push((binding.binding, variable.name.clone().unwrap_or_default(), kind));
    }
    seen.sort_by_key(|binding| binding.0);
    let read: Vec<_> = read_bindings(&wgsl).into_iter().map(|b| (b.index, b.name, b.kind)).collect();
    if read != seen {
        faults.push(format!("bindings: naga sees {seen:?}, the reader {read:?}"));
    }
    let order = |kind: BindingKind| kind as u32;
    if !read.is_sorted_by_key(|binding| order(binding.2)) || read[0].1 != "params" {
        faults.push(format!("bindings are not params, inputs, outputs: {read:?}"));
    }

    faults.extend(struct_faults(&module, "Params", fields));
    if key.files.contains(&"sampling.wgsl") {
        faults.extend(struct_faults(&module, "Settings", sample::Settings::FIELDS));
    }
    if key.files.contains(&"optimizer.wgsl") {
        faults.extend(struct_faults(&module, "Rates", optimizer::Rates::FIELDS));
    }
    faults
}

/// How a WGSL struct differs from its twin in Rust.
fn struct_faults(module: &naga::Module, name: &str, fields: Fields) -> Option<String> {
    let found = module.types.iter().find(|(_, ty)| ty.name.as_deref() == Some(name));
    let Some(TypeInner::Struct { members, .. }) = found.map(|(_, ty)| &ty.inner) else {
        return Some(format!("no struct {name}"));
    };
    let in_wgsl: Vec<_> = members
        .iter()
        .map(|m| {
            let kind = match &module.types[m.ty].inner {
                TypeInner::Scalar(naga::Scalar { kind: naga::ScalarKind::Uint, width: 4 }) => "u32",
                TypeInner::Scalar(naga::Scalar { kind: naga::ScalarKind::Float, width: 4 }) => "f32",
                _ => "something else",
            };
            (m.name.clone().unwrap_or_default(), kind, m.offset)
        })
        .collect();
    let in_rust: Vec<_> = fields.iter().enumerate().map(|(i, f)| (f.0.to_string(), f.1, i as u32 * 4)).collect();
    (in_wgsl != in_rust).then(|| format!("{name}: WGSL has {in_wgsl:?}, Rust has {in_rust:?}"))
}

#[test]
fn every_kernel_is_valid_and_matches_rust() {
    let mut wrong = Vec::new();
    for (key, fields) in all_kernels() {
        wrong.extend(faults(&key, fields).into_iter().map(|fault| format!("{}: {fault}", key.files.join(" + "))));
    }
    assert!(wrong.is_empty(), "{} faults:\n{}", wrong.len(), wrong.join("\n"));
}

/// Vulkan, Metal and DX12 get what naga makes of the WGSL: it must be able to, whatever this machine has.
#[test]
fn every_kernel_translates_for_every_api() {
    use naga::back::{hlsl, msl, spv};
    let mut wrong = Vec::new();
    for (key, _) in all_kernels() {
        let module = naga::front::wgsl::parse_str(&shaders::link(&key.files)).unwrap();
        let info = Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&module).unwrap();
        let entry = Some((naga::ShaderStage::Compute, key.name()));
        let (module, info) =
            naga::back::pipeline_constants::process_overrides(&module, &info, entry, &Default::default()).unwrap();
        let mut tell = |api: &str, outcome: Result<(), String>| {
            wrong.extend(outcome.err().map(|e| format!("{api}: {}: {e}", key.files.join(" + "))));
        };
        let vulkan = spv::Options { lang_version: (1, 3), ..Default::default() };
        tell("Vulkan", spv::write_vec(&module, &info, &vulkan, None).map(drop).map_err(|e| e.to_string()));
        let metal = msl::Options { lang_version: (2, 3), ..Default::default() };
        let outcome = msl::write_string(&module, &info, &metal, &Default::default());
        tell("Metal", outcome.map(drop).map_err(|e| e.to_string()));
        if key.files.iter().any(|file| ["matrix/half16.wgsl", "matrix/float8.wgsl"].contains(file)) {
            continue; // DX12 has no matrices in wgpu
        }
        let dx12 = hlsl::Options { shader_model: hlsl::ShaderModel::V6_4, ..Default::default() };
        let (mut text, pipeline) = (String::new(), Default::default());
        let outcome = hlsl::Writer::new(&mut text, &dx12, &pipeline).write(&module, &info, None);
        tell("DX12", outcome.map(drop).map_err(|e| e.to_string()));
    }
    assert!(wrong.is_empty(), "{} faults:\n{}", wrong.len(), wrong.join("\n"));
}

/// For web/test/shaders.test.mjs, where a browser's own compiler gets them: all but those for matrix hardware, of which
/// browsers have none. It fails there if the file is not written here.
#[test]
fn every_kernel_is_written_for_browsers() {
    let for_browsers = |(key, _): &(KernelKey, Fields)| {
        !key.files.iter().any(|f| f.ends_with("half16.wgsl") || f.ends_with("float8.wgsl"))
    };
    let kernels: Vec<_> = all_kernels()
        .iter()
        .filter(|kernel| for_browsers(kernel))
        .map(|(key, _)| serde_json::json!({ "name": key.files.join(" + "), "wgsl": shaders::link_for_browsers(&key.files) }))
        .collect();
    assert!(kernels.len() > 200, "{} kernels", kernels.len());
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("shaders.json");
    std::fs::write(path, serde_json::Value::Array(kernels).to_string()).unwrap();
}

#[test]
fn every_file_is_used_and_listed() {
    let used: HashSet<&str> = all_kernels().iter().flat_map(|(key, _)| key.files.clone()).collect();
    let listed: HashSet<&str> = shaders::FILES.iter().map(|file| file.0).collect();
    assert_eq!(used, listed, "the kernels of this test and src/shaders.rs name different files");
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("shaders");
    let mut folders = vec![root.clone()];
    let mut on_disk = HashSet::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "wgsl") {
                on_disk.insert(path.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/"));
            }
        }
    }
    assert_eq!(on_disk, listed.iter().map(|f| f.to_string()).collect(), "shaders/ and src/shaders.rs differ");
}

#[test]
fn one_function_name_has_one_text() {
    // Files that stand for one another define the same names on purpose; all others must share, not copy.
    let twins = [
        "decode",
        "packed",
        "quad",
        "group_sum",
        "group_max",
        "group_sum4",
        "group_max4",
        "kv_most",
        "kv_pack",
        "kv_unpack",
        "w_at",
        "x_at",
        "block_dot",
        "squares_from",
        "norm_scale",
        "finish",
        "finish_group",
        "keys_at",
        "values_at",
        "dots",
        "put",
        "key_at",
        "value_at",
        "vector_at",
        "put_key",
        "put_value",
        "number",
        "first_block",
        "subgroup_of",
        "load_a",
        "load_b",
        "load_c",
        "multiply_add",
        "store_c",
        "place",
        "outside",
        "steps",
        "prepare",
        "fill",
        "put_four",
    ];
    let mut texts: std::collections::HashMap<String, (&str, String)> = Default::default();
    let mut wrong = Vec::new();
    for (file, text) in shaders::FILES {
        for part in text.split("\nfn ").skip(1) {
            let name = part.split('(').next().unwrap_or_default().to_string();
            let body = part.split("\n}\n").next().unwrap_or_default().to_string();
            if twins.contains(&name.as_str()) {
                continue;
            }
            if let Some((other, _)) = texts.insert(name.clone(), (file, body)) {
                wrong.push(format!("{name} stands in {other} and in {file}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
