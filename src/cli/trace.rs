//! `trace`: activations by name. Their statistics as a table, all their numbers as safetensors, linear CKA between them.

use super::open::{Context, ModelFile, RunArgs};
use super::prompt::PromptArgs;
use super::{Failure, output};
use clap::Args;
use peregrine::files::replace_with;
use peregrine::taps::extend;
use peregrine::{Activation, Error, Tapped, block_on, linear_cka};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::json;
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct Trace {
    /// A GGUF file
    model: PathBuf,
    /// Which activations: blk.N.attn_norm, attn_out, ffn_norm, ffn_out, resid_post, and logits; * stands for anything
    #[arg(long, value_name = "PATTERN", value_delimiter = ',', default_value = "blk.*.resid_post")]
    taps: Vec<String>,
    /// The way of the prompt: in chunks (logits of its last token alone), token by token, or as a whole without a cache
    /// (always in f32)
    #[arg(long, value_enum, default_value = "prefill")]
    mode: Mode,
    /// Write the activations as safetensors, [tokens, channels] each; a file that is there is replaced
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Linear CKA between two taps; with --with, of the first here and the second there
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    cka: Option<Vec<String>>,
    /// A file that --out wrote in another run: linear CKA of each tap with its namesake there
    #[arg(long, value_name = "FILE")]
    with: Option<PathBuf>,
    /// Print {"ids":[..],"mode":..,"taps":[{"name":..,"shape":[..],"l2":..,..}],"cka":[{"a":..,"b":..,"cka":..}]}
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Mode {
    Prefill,
    Decode,
    Sequence,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Prefill => "prefill",
            Mode::Decode => "decode",
            Mode::Sequence => "sequence",
        }
    }
}

/// Of another run, by name.
type Others = HashMap<String, Activation>;

impl Trace {
    pub fn run(self) -> Result<(), Failure> {
        self.out.as_deref().map_or(Ok(()), |path| output::may_be_overwritten(path, "--out", "the activations"))?;
        let file = ModelFile::open_model(Some(&self.model))?;
        let prompt = self.prompt.read(&file, None)?;
        let others = self.with.as_deref().map(|path| read(path, &prompt.ids)).transpose()?;
        let tapped = self.tapped(&file, &prompt.ids)?;
        let compared = self.compared(&tapped, others.as_ref())?;
        if let Some(path) = &self.out {
            self.write(path, &prompt.ids, &tapped)?;
        }
        if self.json {
            let taps = tapped.iter().map(|Tapped { name, activation, statistics: s }| {
                json!({"name": name, "shape": [activation.rows, activation.cols], "l2": s.l2(), "min": s.min,
                       "max": s.max, "mean": s.mean(), "mean_abs": s.mean_abs(), "nan": s.nan})
            });
            let cka: Vec<_> = compared.iter().map(|(a, b, cka)| json!({"a": a, "b": b, "cka": cka})).collect();
            let all =
                json!({"ids": prompt.ids, "mode": self.mode.name(), "taps": taps.collect::<Vec<_>>(), "cka": cka});
            return Ok(output::json(&all)?);
        }
        show(&tapped, &compared)
    }

    /// Runs the prompt and reads the taps.
    fn tapped(&self, file: &ModelFile, ids: &[u32]) -> Result<Vec<Tapped>, Failure> {
        if self.mode == Mode::Sequence {
            let model = file.model(self.run.gpu()?, &self.run)?;
            let tokens = ids.len() as u32;
            let mut sequences = model.sequences(tokens, tokens)?;
            for pattern in &self.taps {
                sequences.tap(pattern)?;
            }
            let with_logits = sequences.taps().list().contains(&peregrine::taps::Tap::Logits);
            let wanted: Option<&[u32]> = if with_logits { None } else { Some(&[]) };
            return Ok(block_on(sequences.run(&[ids], wanted, |_, _| ()))?);
        }
        let mut session = file.session(&self.run)?;
        for pattern in &self.taps {
            session.tap(pattern)?;
        }
        if self.mode == Mode::Prefill {
            block_on(session.append(ids))?;
            return Ok(session.tapped().to_vec());
        }
        let mut all = Vec::new();
        for &id in ids {
            block_on(session.append(&[id]))?;
            extend(&mut all, session.tapped().to_vec());
        }
        Ok(all)
    }

    /// (a, b, CKA) of all that is to be compared.
    fn compared(&self, tapped: &[Tapped], others: Option<&Others>) -> Result<Vec<(String, String, f64)>, Failure> {
        let here: HashMap<&str, &Activation> = tapped.iter().map(|t| (t.name.as_str(), &t.activation)).collect();
        let there: HashMap<&str, &Activation> =
            others.map_or(here.clone(), |others| others.iter().map(|(name, a)| (name.as_str(), a)).collect());
        let pairs: Vec<(&str, &str)> = match (&self.cka, others) {
            (Some(pair), _) => vec![(&pair[0], &pair[1])],
            (None, Some(_)) => {
                tapped.iter().map(|t| t.name.as_str()).filter(|n| there.contains_key(n)).map(|n| (n, n)).collect()
            }
            (None, None) => Vec::new(),
        };
        if let (true, Some(path)) = (pairs.is_empty(), &self.with) {
            let got = format!("{}, which holds {}", path.display(), listed(there.keys().copied()));
            let expected = format!("a file with one of the taps: {}", listed(here.keys().copied()));
            return Err(Error::Argument { what: "--with".into(), expected, got }.into());
        }
        let of = |all: &HashMap<&str, &Activation>, name: &str| {
            all.get(name).copied().cloned().ok_or_else(|| Error::Argument {
                what: "--cka".into(),
                expected: format!("one of {}", listed(all.keys().copied())),
                got: format!("{name:?}"),
            })
        };
        let pairs = pairs.into_iter();
        pairs.map(|(a, b)| Ok((a.into(), b.into(), linear_cka(&of(&here, a)?, &of(&there, b)?)?))).collect()
    }

    fn write(&self, path: &Path, ids: &[u32], tapped: &[Tapped]) -> Result<(), Failure> {
        let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
        let model = self.model.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let metadata = [("ids", ids.join(" ")), ("mode", self.mode.name().into()), ("model", model)];
        let metadata = metadata.map(|(key, value)| (key.to_string(), value)).into_iter().collect();
        let views = tapped.iter().map(|Tapped { name, activation: Activation { rows, cols, values }, .. }| {
            let shape = vec![*rows as usize, *cols as usize];
            Ok((name, TensorView::new(Dtype::F32, shape, bytemuck::cast_slice(values))?))
        });
        let views = views.collect::<Result<Vec<_>, safetensors::SafeTensorError>>()?;
        let bytes = safetensors::serialize(views, Some(metadata))?;
        // where a link leads to, not in the link's place
        let path = std::fs::canonicalize(path).unwrap_or(path.into());
        Ok(replace_with(&path, |out| out.write_all(&bytes).map_err(|source| Error::Write { source }))?)
    }
}

/// What another run wrote.
fn read(path: &Path, ids: &[u32]) -> Result<Others, Failure> {
    let bytes = std::fs::read(path).map_err(|source| Error::Io { path: path.into(), source })?;
    let broken = |source: Failure| -> Failure {
        let what = format!("cannot take activations from {}: it is no file that --out wrote", path.display());
        Context { what, source }.into()
    };
    let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(|error| broken(error.into()))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|error| broken(error.into()))?;
    let theirs = metadata.metadata().as_ref().and_then(|map| map.get("ids").cloned()).unwrap_or_default();
    let ours: Vec<String> = ids.iter().map(u32::to_string).collect();
    if theirs != ours.join(" ") {
        log::warn!(
            "{} is of other tokens than this prompt's; CKA compares them one by one all the same",
            path.display()
        );
    }
    let mut others = HashMap::new();
    for (name, view) in file.tensors() {
        let &[rows, cols] = view.shape() else {
            return Err(broken(format!("{name} has the shape {:?}, expected two dims", view.shape()).into()));
        };
        if view.dtype() != Dtype::F32 {
            return Err(broken(format!("{name} is {:?}, expected F32", view.dtype()).into()));
        }
        let values = bytemuck::pod_collect_to_vec(view.data());
        others.insert(name, Activation { rows: rows as u32, cols: cols as u32, values });
    }
    Ok(others)
}

/// "a, b, c", sorted.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names.join(", ")
}

fn show(tapped: &[Tapped], compared: &[(String, String, f64)]) -> Result<(), Failure> {
    let width = tapped.iter().map(|tapped| tapped.name.len()).max().unwrap_or(0).max("name".len());
    let heads = ["l2", "min", "max", "mean", "mean abs"].map(|head| format!("{head:>11}")).join(" ");
    output::line(format!("{:<width$}  {:>13} {heads} {:>6}", "name", "shape", "NaN"), 0)?;
    for Tapped { name, activation, statistics: s } in tapped {
        let shape = format!("[{}, {}]", activation.rows, activation.cols);
        let numbers = [s.l2(), s.min as f64, s.max as f64, s.mean(), s.mean_abs()];
        let numbers = numbers.map(|number| format!("{number:>11.4e}")).join(" ");
        output::line(format!("{name:<width$}  {shape:>13} {numbers} {:>6}", s.nan), 0)?;
    }
    if let Some(few) = tapped.iter().map(|t| &t.activation).find(|a| !compared.is_empty() && a.rows < a.cols) {
        log::warn!(
            "CKA of {} tokens with {} channels: over so few it is near 1 whatever they are; take a longer prompt",
            few.rows,
            few.cols
        );
    }
    for (a, b, cka) in compared {
        output::line(format!("CKA of {a} and {b}: {cka:.6}"), 0)?;
    }
    Ok(())
}
