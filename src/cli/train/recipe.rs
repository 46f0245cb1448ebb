//! Settings from a file, from flags laid over it, and from an earlier part of the same run; and what is wrong with them.

use super::context;
use super::options::{bad, format};
use super::settings::{Recipe, Rule, Settings};
use crate::cli::Failure;
use peregrine::Error;
use std::path::{Path, PathBuf};

/// Batches of a step at most: they are drawn before it begins.
const MOST_BATCHES: u32 = 65_536;

impl Settings {
    /// These settings over those of a file; `flag` is what named it.
    pub fn over(self, file: Option<(PathBuf, &str)>) -> Result<Settings, Failure> {
        let Some((path, flag)) = file else { return Ok(self) };
        let text = std::fs::read_to_string(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
        let broken = |error: toml::de::Error| context(format!("cannot read the recipe {}", path.display()), error);
        let below: Settings = toml::from_str(&text).map_err(broken)?;
        if below.recipe != self.recipe {
            let got = format!("{}, which is one for {}", path.display(), below.recipe.name());
            return Err(bad(flag, format!("a recipe for {}", self.recipe.name()), got));
        }
        let others = [
            ("lora", below.lora.is_some() && self.lora.is_none()),
            ("full", below.full.is_some() && self.full.is_none()),
            ("scratch", below.scratch.is_some() && self.scratch.is_none()),
        ];
        if let Some((name, _)) = others.into_iter().find(|(_, there)| *there) {
            let got = format!("a table [{name}] in {}", path.display());
            return Err(bad(flag, format!("settings of {} alone", self.recipe.name()), got));
        }
        let mut all = toml::Table::try_from(&below)?;
        // of two ways to say one thing, the flag that was given wins
        let mut without = |table: &str, key: &str| {
            if let Some(toml::Value::Table(table)) = all.get_mut(table) {
                table.remove(key);
            }
        };
        let given = |given: bool, table: &'static str, key: &'static str| given.then_some((table, key));
        let (scratch, full) = (self.scratch.clone().unwrap_or_default(), self.full.clone().unwrap_or_default());
        let losers = [
            given(self.run.steps.is_some(), "run", "epochs"),
            given(self.run.epochs.is_some(), "run", "steps"),
            given(self.run.val.is_some(), "run", "val-share"),
            given(self.run.val_share.is_some(), "run", "val"),
            given(scratch.tokenizer.is_some(), "scratch", "vocab"),
            given(scratch.vocab.is_some(), "scratch", "tokenizer"),
            given(full.embeddings.is_some(), "full", "tensors"),
            given(full.tensors.is_some(), "full", "embeddings"),
        ];
        losers.into_iter().flatten().for_each(|(table, key)| without(table, key));
        lay_over(&mut all, toml::Table::try_from(&self)?);
        Ok(all.try_into()?)
    }

    /// Checked numbers of what all recipes have.
    pub fn check(&self) -> Result<(), Failure> {
        let run = &self.run;
        let share = |what: &str, value: Option<f64>| match value {
            Some(value) if !(0.0..1.0).contains(&value) => Err(bad(what, "a share from 0 to below 1", value)),
            _ => Ok(()),
        };
        share("--val-share", run.val_share)?;
        share("--beta1", run.beta1)?;
        share("--beta2", run.beta2)?;
        share("--momentum", run.momentum)?;
        let from = |what: &str, value: Option<f64>, most: f64| match value {
            Some(value) if !(0.0..=most).contains(&value) => Err(bad(what, format!("0 to {most}"), value)),
            _ => Ok(()),
        };
        from("--least", run.least, 1.0)?;
        from("--lr", run.lr, 1e3)?;
        from("--decay", run.decay, 1e3)?;
        from("--clip", run.clip, 1e9)?;
        let counts = [
            ("--ctx", run.ctx.map(u64::from)),
            ("--batch", run.batch.map(u64::from)),
            ("--accum", run.accum.map(u64::from)),
            ("--steps", run.steps),
            ("--epochs", run.epochs),
            ("--save-every", run.save_every),
            ("--val-every", run.val_every),
        ];
        if let Some((what, _)) = counts.into_iter().find(|(_, value)| *value == Some(0)) {
            return Err(bad(what, "1 or more", 0));
        }
        if let Some(accum) = run.accum.filter(|&accum| accum > MOST_BATCHES) {
            return Err(bad("--accum", format!("at most {MOST_BATCHES}"), accum));
        }
        self.formats().try_for_each(|(flag, name)| format(flag, name).map(drop))?;
        let numbers = [
            ("--seed", run.seed),
            ("--steps", run.steps),
            ("--epochs", run.epochs),
            ("--warmup", run.warmup),
            ("--save-every", run.save_every),
            ("--val-every", run.val_every),
        ];
        if let Some((what, Some(got))) = numbers.into_iter().find(|(_, value)| *value > Some(i64::MAX as u64)) {
            return Err(bad(what, format!("at most {}, which TOML can say", i64::MAX), got));
        }
        self.check_pairs()?;
        let parts = self.full.as_ref().and_then(|full| full.tensors.as_ref());
        if parts.is_some_and(|parts| parts.iter().any(|part| part.trim().is_empty())) {
            return Err(bad("--tensors", "parts of tensors' names, separated by commas", "an empty one"));
        }
        let warm = self.scratch.as_ref().filter(|_| self.recipe == Recipe::WarmStart);
        if warm.is_some_and(|scratch| scratch.tokenizer.is_some() || scratch.vocab.is_some()) {
            return Err(bad("--tokenizer or --vocab", "neither: a warm start has the donor's vocabulary", "one"));
        }
        if run.data.is_none() {
            return Err(bad("--data", "a file to learn from", "none"));
        }
        Ok(())
    }
}

impl Settings {
    /// Settings that say one thing twice, or would not be followed beside others.
    fn check_pairs(&self) -> Result<(), Failure> {
        let (run, sgd) = (&self.run, self.run.optimizer == Some(Rule::Sgd));
        let (scratch, full) = (self.scratch.clone().unwrap_or_default(), self.full.clone().unwrap_or_default());
        let lora = self.lora.clone().unwrap_or_default();
        let shaped = lora.rank.is_some() || lora.alpha.is_some() || lora.target.is_some() || lora.rslora.is_some();
        let pairs = [
            ("from and rank, alpha, target or rslora", lora.from.is_some() && shaped),
            ("steps and epochs", run.steps.is_some() && run.epochs.is_some()),
            ("val and val-share", run.val.is_some() && run.val_share.is_some()),
            ("tokenizer and vocab", scratch.tokenizer.is_some() && scratch.vocab.is_some()),
            ("tensors and embeddings", full.tensors.is_some() && full.embeddings.is_some()),
        ];
        if let Some((what, _)) = pairs.into_iter().find(|(_, both)| *both) {
            return Err(bad(what, "one of them", "both"));
        }
        if let Some(momentum) = run.momentum.filter(|_| !sgd) {
            return Err(bad("--momentum", "--optimizer sgd beside it", momentum));
        }
        if let Some(beta) = run.beta1.or(run.beta2).filter(|_| sgd) {
            return Err(bad("--beta1 and --beta2", "--optimizer adamw beside them", beta));
        }
        if self.recipe == Recipe::WarmStart && scratch.untied == Some(false) {
            let expected =
                "true: the projection takes the embedding's place, so the output head cannot be the embedding";
            return Err(bad("--untied", expected, "false"));
        }
        Ok(())
    }

    /// What decides the losses, as TOML: not how often a run saves and evaluates, nor what it writes at the end, nor where files
    /// lie, as what is in them counts.
    fn decisive(&self) -> Result<toml::Table, Failure> {
        let mut all: toml::Table = toml::from_str(&toml::to_string(self)?)?; // as it would be read
        all.remove("model");
        let free: [(&str, &[&str]); 4] = [
            ("run", &["save-every", "val-every", "sample", "data", "val", "chat-template"]),
            ("lora", &["merge", "from"]),
            ("full", &["format"]),
            ("scratch", &["format", "tokenizer"]),
        ];
        for (part, keys) in free {
            if let Some(toml::Value::Table(part)) = all.get_mut(part) {
                keys.iter().for_each(|key| drop(part.remove(*key)));
            }
        }
        Ok(all)
    }

    /// A number that tells them apart from others that would give other losses.
    pub fn fingerprint(&self) -> Result<u64, Failure> {
        Ok(peregrine::files::hash(self.decisive()?.to_string().as_bytes()))
    }
}

/// A table's values over another's, tables within them likewise.
fn lay_over(below: &mut toml::Table, above: toml::Table) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => lay_over(below, above),
            (_, value) => {
                below.insert(key, value);
            }
        }
    }
}

/// Refuses to go on with a run under other settings: it would not be the same run.
pub fn same_run(settings: &Settings, folder: &Path) -> Result<(), Failure> {
    let path = folder.join("config.toml");
    let text = std::fs::read_to_string(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
    let before: Settings =
        toml::from_str(&text).map_err(|error| context(format!("cannot read {}", path.display()), error))?;
    let (before, now) = (before.decisive()?, settings.decisive()?);
    if before == now {
        return Ok(());
    }
    let [was, is] = [before, now].map(|table| table.to_string().lines().map(str::to_string).collect::<Vec<_>>());
    let only = |a: &[String], b: &[String]| {
        let lines: Vec<&str> = a.iter().filter(|line| !b.contains(line)).map(String::as_str).collect();
        if lines.is_empty() { "nothing".to_string() } else { lines.join(", ") }
    };
    Err(bad("--resume", format!("the settings of {}: {}", path.display(), only(&was, &is)), only(&is, &was)))
}
