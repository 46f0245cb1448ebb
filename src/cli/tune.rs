//! `tune`: measures which profile runs a model fastest on this device, and keeps it for the commands that run models.

use super::cache::{self, TuningFile, described};
use super::open::{Kv, ModelFile, RunArgs};
use super::{Failure, output};
use clap::Args;
use peregrine::tune::tune;
use peregrine::{Error, SessionOptions, block_on};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args)]
pub struct Tune {
    /// A GGUF file; without it, the model that is built in
    model: Option<PathBuf>,
    /// Seconds after which no other profile is tried
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    run: RunArgs,
}

impl Tune {
    pub fn run(mut self) -> Result<(), Failure> {
        let senseless = [
            (self.run.exact, "--exact", "whose result exact runs never take"),
            (self.run.no_tune, "--no-tune", "which can do nothing but tune"),
            (self.run.ctx.is_some(), "--ctx", "whose result serves every context"),
            (self.run.kv != Kv::F16, "--kv", "whose result serves every type of cache"),
        ];
        if let Some((_, flag, why)) = senseless.into_iter().find(|(given, ..)| *given) {
            let (expected, got) = ("a command that runs a model".into(), format!("tune, {why}; leave the flag out"));
            return Err(Error::Argument { what: flag.into(), expected, got }.into());
        }
        self.run.no_tune = true; // begins from the device's own profile
        let file = ModelFile::open_model(self.model.as_deref())?;
        let model = file.model(self.run.gpu()?, &self.run)?;
        let tuning = block_on(tune(&model, &SessionOptions::default(), Duration::from_secs(self.seconds.into())))?;
        let best = &tuning.trials[tuning.best];
        let compared = tuning.trials.iter().any(|trial| trial.profile != model.gpu().profile());
        let kept = match self.run.device.cache() {
            // what an earlier run found is better than what none has tried
            _ if !compared => Err(format!(
                "no profile but the device's own was measured in {}, so nothing is found and nothing replaced; give it more --seconds",
                output::counted(self.seconds.into(), "second")
            )),
            Some(folder) => {
                let file = TuningFile::new(&folder, model.gpu(), &file.gguf);
                let written =
                    file.write(best).map_err(|error| format!("{} cannot be written: {error}", file.path().display()));
                written.map(|()| file)
            }
            None if self.run.device.no_cache => Err("--no-cache asks for that".into()),
            None => Err("there is no folder for it; PEREGRINE_CACHE_DIR can name one".into()),
        };
        let card = model.gpu().card();
        if self.json {
            let trials = tuning.trials.iter().enumerate().map(|(i, trial)| {
                json!({"profile": cache::object(trial.profile), "prompt": trial.prompt, "prefill_tps": trial.prefill,
                       "decode_tps": trial.decode, "chosen": i == tuning.best})
            });
            return Ok(output::json(&json!({
                "device": card.name, "backend": format!("{:?}", card.backend), "driver": card.driver,
                "trials": trials.collect::<Vec<_>>(), "kept_in": kept.as_ref().ok().map(TuningFile::path),
                "not_kept": kept.as_ref().err(),
            }))?);
        }
        output::line(format!("device  {} ({:?})\n", card.name, card.backend), 8)?;
        output::line(format!("  {:<40}  prompt  prefill tokens/s  decode tokens/s", "profile"), 0)?;
        for (i, trial) in tuning.trials.iter().enumerate() {
            let mark = if i == tuning.best { "*" } else { " " };
            let (profile, prompt) = (described(trial.profile), trial.prompt);
            let (prefill, decode) = (trial.prefill, trial.decode);
            output::line(format!("{mark} {profile:<40}  {prompt:>6}  {prefill:>16.1}  {decode:>15.1}"), 0)?;
        }
        let told = match &kept {
            Ok(file) => format!("is kept in {}", file.path().display()),
            Err(why) => format!("is kept nowhere: {why}"),
        };
        Ok(output::line(format!("\n* {told}"), 0)?)
    }
}
