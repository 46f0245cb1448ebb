//! `tune`: measures which profile runs a model fastest on this device, and keeps it for the commands that run models.

use super::cache::{self, TuningFile, described};
use super::open::{ModelFile, RunArgs};
use super::{Failure, output};
use clap::Args;
use peregrine::tune::tune;
use peregrine::{Error, block_on};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args)]
pub struct Tune {
    /// A GGUF file; without it, the model that is built in
    model: Option<PathBuf>,
    /// Seconds after which no other profile is tried
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    run: RunArgs,
}

impl Tune {
    pub fn run(mut self) -> Result<(), Failure> {
        let senseless = [
            (self.run.exact, "--exact", "none (exact runs take the device's own profile, whatever is tuned)"),
            (self.run.no_tune, "--no-tune", "none (this command tunes)"),
        ];
        if let Some((_, flag, expected)) = senseless.into_iter().find(|(given, ..)| *given) {
            return Err(Error::Argument { what: flag.into(), expected: expected.into(), got: flag.into() }.into());
        }
        self.run.no_tune = true; // begins from the device's own profile
        let file = ModelFile::open_model(self.model.as_deref())?;
        let model = file.model(self.run.gpu()?, &self.run)?;
        let tuning = block_on(tune(&model, &self.run.options(), Duration::from_secs(self.seconds)))?;
        let best = &tuning.trials[tuning.best];
        let kept = match self.run.cache() {
            Some(folder) => {
                let file = TuningFile::new(&folder, model.gpu(), &file.gguf);
                let written =
                    file.write(best).map_err(|error| format!("{} cannot be written: {error}", file.path().display()));
                written.map(|()| file)
            }
            None if self.run.no_cache => Err("--no-cache asks for that".into()),
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
