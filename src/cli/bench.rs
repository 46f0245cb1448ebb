//! `bench`: tokens a second of a model on this machine, beside what the device could read.

use super::cache::described;
use super::open::{Context, ModelFile, RunArgs};
use super::{Failure, output};
use clap::Args;
use peregrine::bench::{Ceilings, median, read_bandwidth, recording, speeds};
use peregrine::plan::{Frame, Plan};
use peregrine::profile::{StepTime, kinds, profile_median};
use peregrine::{Profile, Session, block_on};
use serde_json::json;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Args)]
pub struct Bench {
    /// A GGUF file; without it, the model that is built in
    model: Option<PathBuf>,
    /// Tokens of the prompt
    #[arg(short = 'p', long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    prompt: u32,
    /// Tokens to decode
    #[arg(short = 'n', long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    tokens: u32,
    /// Measured runs, after one that warms up
    #[arg(short, long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Tell where the time goes, by the GPU's own clock: the steps that lose the most first
    #[arg(long)]
    profile: bool,
    /// Write the profiled passes as a Chrome trace (chrome://tracing, ui.perfetto.dev)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    run: RunArgs,
}

impl Bench {
    pub fn run(mut self) -> Result<(), Failure> {
        let needed = self.prompt.saturating_add(self.tokens);
        self.trace.as_deref().map_or(Ok(()), |path| output::may_be_overwritten(path, "--trace", "the trace"))?;
        let mut start = Instant::now();
        let mut lap = || std::mem::replace(&mut start, Instant::now()).elapsed().as_secs_f64() * 1e3;
        let file = ModelFile::open_model(self.model.as_deref())?;
        let open_ms = lap();
        let hint = "Choose a larger --ctx, or a smaller --prompt and --tokens (128 and 64 where they are not given)";
        self.run.make_room(needed, 512, file.config()?.context_length, hint)?;
        let gpu = self.run.gpu()?;
        let device_ms = lap();
        let model = file.model(gpu, &self.run)?;
        let load_ms = lap();
        let mut session = model.session(&self.run.options())?;
        let session_ms = lap();
        let trace = self.trace.as_deref().map(Trace::create).transpose()?;
        let times = model.load_times();
        let vocab = session.model().config().vocab_size;
        let prompt: Vec<u32> = (0..self.prompt).map(|i| i.wrapping_mul(2_654_435_761) % vocab).collect();
        let measured = block_on(speeds(&mut session, &prompt, self.tokens, self.runs))?;
        let gpu = session.model().gpu();
        let profiled = if self.profile || self.trace.is_some() { Some(self.profile(&session)?) } else { None };
        let bandwidth = match &profiled {
            Some(profiled) => profiled.ceilings.read,
            None => block_on(read_bandwidth(gpu))?,
        };
        let traced = match (trace, &profiled) {
            (Some(trace), Some(profiled)) => trace.write(profiled),
            _ => Ok(()),
        };
        let exact = self.run.exact; // leaves out what does not compute in f32
        let profile = gpu.profile();
        let in_use = Profile { int8: profile.int8 && !exact, matrix: profile.matrix.filter(|_| !exact), ..profile };
        let (prefill, decode) = (median(&measured.prefill), median(&measured.decode));
        let plan = session.plan();
        let bytes = plan.weight_bytes();
        let last = Frame { position: needed - 1, tokens: 1 };
        let dispatches = plan.dispatches(last) + session.sample_plan().dispatches(last);
        let record_us = recording(&session) * 1e6;
        let read = decode * bytes as f64;
        let card = session.model().gpu().card();
        let first_token_ms = measured.first_token * 1e3;
        let start_ms = open_ms + device_ms + load_ms + session_ms + first_token_ms;
        let upload_gbps = model.weights().bytes() as f64 / times.upload / 1e9;
        if self.json {
            output::json(&json!({
                "device": card.name,
                "backend": format!("{:?}", card.backend),
                "driver": card.driver,
                "version": env!("CARGO_PKG_VERSION"),
                "profile_in_use": super::cache::object(in_use),
                "open_ms": open_ms,
                "device_ms": device_ms,
                "load_ms": load_ms,
                "upload_ms": times.upload * 1e3,
                "upload_gbps": upload_gbps,
                "pipelines": times.count,
                "pipelines_ms": times.pipelines * 1e3,
                "session_ms": session_ms,
                "first_token_ms": first_token_ms,
                "start_ms": start_ms,
                "prompt_tokens": self.prompt,
                "decoded_tokens": self.tokens,
                "prefill_tps": prefill,
                "decode_tps": decode,
                "prefill_runs": measured.prefill,
                "decode_runs": measured.decode,
                "dispatches_per_token": dispatches,
                "record_us_per_token": record_us,
                "bytes_per_token": bytes,
                "read_bandwidth_gbps": bandwidth / 1e9,
                "bandwidth_fraction": read / bandwidth,
                "profile": profiled.as_ref().map(Profiled::json),
            }))?;
            return traced;
        }
        let spread = |runs: &[f64]| {
            let (low, high) = runs.iter().fold((f64::MAX, 0.0f64), |(low, high), v| (low.min(*v), high.max(*v)));
            format!("{low:.1} to {high:.1} in {}", output::counted(runs.len() as u64, "run"))
        };
        let line = |name: &str, text: String| output::line(format!("{name:<11}{text}"), 11);
        line("device", format!("{} ({:?})", card.name, card.backend))?;
        line("driver", card.driver.clone())?;
        line("profile", described(in_use))?;
        line(
            "start",
            format!(
                "{start_ms:.0} ms to the first token: opening {open_ms:.0}, device {device_ms:.0}, loading {load_ms:.0}, \
                 session {session_ms:.0}, prompt {first_token_ms:.0}"
            ),
        )?;
        let (upload, pipelines) = (times.upload * 1e3, times.pipelines * 1e3);
        line(
            "loading",
            format!(
                "weights in {upload:.0} ms ({upload_gbps:.2} GB/s), {} pipelines in {pipelines:.0} ms beside them",
                times.count
            ),
        )?;
        let tokens = |n: u32| output::counted(n.into(), "token");
        let (prompt, decoded) = (tokens(self.prompt), tokens(self.tokens));
        line("prefill", format!("{prefill:.1} tokens/s of {prompt} ({})", spread(&measured.prefill)))?;
        line("decode", format!("{decode:.1} tokens/s over {decoded} ({})", spread(&measured.decode)))?;
        let bytes = output::bytes(bytes);
        line("a token", format!("{dispatches} dispatches, recorded in {record_us:.0} us, {bytes} of weights read"))?;
        let (read, bandwidth) = (read / 1e9, bandwidth / 1e9);
        let percent = 100.0 * read / bandwidth;
        line("bandwidth", format!("{read:.2} of the {bandwidth:.1} GB/s that this device reads ({percent:.1} %)"))?;
        if let Some(profiled) = profiled {
            profiled.show()?;
        }
        traced
    }

    fn profile<'a>(&self, session: &'a Session) -> Result<Profiled<'a>, Failure> {
        let gpu = session.model().gpu();
        let chunk = session.prefill_plan().max_tokens;
        let passes = [
            (session.prefill_plan(), Frame { position: 0, tokens: self.prompt.min(chunk) }),
            (session.plan(), Frame { position: self.prompt + self.tokens / 2, tokens: 1 }),
            (session.sample_plan(), Frame { position: self.prompt + self.tokens / 2, tokens: 1 }),
        ];
        let times = passes.map(|(plan, frame)| {
            block_on(profile_median(gpu, plan, frame, self.runs)).map(|times| Pass { plan, frame, times })
        });
        let [prefill, decode, sample] = times;
        let serial = gpu.profile().lanes;
        Ok(Profiled { passes: [prefill?, decode?, sample?], ceilings: block_on(Ceilings::measure(gpu))?, serial })
    }
}

struct Profiled<'a> {
    passes: [Pass<'a>; 3],
    ceilings: Ceilings,
    serial: bool,
}

struct Pass<'a> {
    plan: &'a Plan,
    frame: Frame,
    times: Vec<StepTime>,
}

impl Profiled<'_> {
    fn show(&self) -> std::io::Result<()> {
        let Ceilings { read, flops, int8, dispatch } = self.ceilings;
        output::line(
            format!(
                "\nThis device reads {:.1} GB/s, does {:.1} GFLOP/s in f32 and {:.1} Gop/s with bytes; an empty dispatch \
                 takes {:.1} us. \"of best\" is the time that this allows{} over the time taken.",
                read / 1e9,
                flops / 1e9,
                int8 / 1e9,
                dispatch * 1e6,
                if self.serial { " (loads and arithmetic added up, as on a processor)" } else { "" }
            ),
            0,
        )?;
        for Pass { plan, frame, times } in &self.passes {
            let total: f64 = times.iter().map(|time| time.seconds).sum();
            let (tokens, position) = (output::counted(frame.tokens.into(), "token"), frame.position);
            output::line(format!("\n{}: {tokens} after {position}, {:.2} ms", plan.name, total * 1e3), 0)?;
            output::line("share      ms  steps  step                 kernel             GB/s  GFLOP/s  of best", 0)?;
            for kind in kinds(plan, *frame, times, &self.ceilings, self.serial) {
                output::line(
                    format!(
                        "{:>4.1} % {:>7.2}  {:>5}  {:<20} {:<16} {:>6.2} {:>8.2} {:>6.0} %",
                        100.0 * kind.seconds / total,
                        kind.seconds * 1e3,
                        kind.steps,
                        kind.label,
                        kind.kernel,
                        kind.bytes as f64 / kind.seconds / 1e9,
                        kind.flops as f64 / kind.seconds / 1e9,
                        100.0 * kind.best / kind.seconds
                    ),
                    0,
                )?;
            }
        }
        Ok(())
    }

    fn json(&self) -> serde_json::Value {
        let passes = self.passes.iter().map(|Pass { plan, frame, times }| {
            let kinds = kinds(plan, *frame, times, &self.ceilings, self.serial);
            let steps = kinds.iter().map(|kind| {
                json!({"step": kind.label, "kernel": kind.kernel, "steps": kind.steps, "seconds": kind.seconds,
                       "bytes": kind.bytes, "flops": kind.flops, "best_seconds": kind.best})
            });
            json!({"pass": plan.name, "position": frame.position, "tokens": frame.tokens,
                   "steps": steps.collect::<Vec<_>>()})
        });
        json!({"read_gbps": self.ceilings.read / 1e9, "f32_gflops": self.ceilings.flops / 1e9,
               "int8_gops": self.ceilings.int8 / 1e9, "dispatch_us": self.ceilings.dispatch * 1e6,
               "passes": passes.collect::<Vec<_>>()})
    }
}

/// The file of a trace, opened before anything is measured.
struct Trace<'a> {
    path: &'a Path,
    file: File,
}

impl Trace<'_> {
    fn create(path: &Path) -> Result<Trace<'_>, Failure> {
        // What is there stays until there is something to replace it.
        let opened = File::options().write(true).create(true).truncate(false).open(path);
        opened.map(|file| Trace { path, file }).map_err(|error| cannot_write(path, error))
    }

    /// One row a pass, one bar a step.
    fn write(mut self, profiled: &Profiled) -> Result<(), Failure> {
        let mut events = Vec::new();
        for (row, Pass { plan, frame, times }) in profiled.passes.iter().enumerate() {
            events.push(json!({"name": "thread_name", "ph": "M", "pid": 1, "tid": row, "args": {"name": plan.name}}));
            for time in times {
                let step = &plan.steps[time.step];
                events.push(json!({
                    "name": step.label, "cat": step.kernel.name, "ph": "X", "pid": 1, "tid": row,
                    "ts": time.start * 1e6, "dur": time.seconds * 1e6,
                    "args": {"kernel": step.kernel.name, "of": step.note, "bytes": step.cost.bytes(*frame),
                             "flops": step.cost.flops(*frame)},
                }));
            }
        }
        let text = json!({"traceEvents": events, "displayTimeUnit": "ms"}).to_string();
        let emptied = self.file.set_len(0);
        emptied.and_then(|()| self.file.write_all(text.as_bytes())).map_err(|error| cannot_write(self.path, error))
    }
}

fn cannot_write(path: &Path, error: std::io::Error) -> Failure {
    Context { what: format!("cannot write {}", path.display()), source: error.into() }.into()
}
