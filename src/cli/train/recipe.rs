//! Settings from a file, from flags laid over it, and from an earlier part of the same run; and what is wrong with them.

use super::context;
use super::settings::{Recipe, Settings, bad, format};
use crate::cli::Failure;
use peregrine::Error;
use std::path::Path;

impl Settings {
    /// These settings over those of a file.
    pub fn over(self, file: Option<&Path>) -> Result<Settings, Failure> {
        let Some(path) = file else { return Ok(self) };
        let text = std::fs::read_to_string(path).map_err(|source| Error::Io { path: path.into(), source })?;
        let broken = |error: toml::de::Error| context(format!("cannot read the recipe {}", path.display()), error);
        let below: Settings = toml::from_str(&text).map_err(broken)?;
        if below.recipe != self.recipe {
            let got = format!("{}, which is one for {}", path.display(), below.recipe.name());
            return Err(bad("--config", format!("a recipe for {}", self.recipe.name()), got));
        }
        let others = [
            ("lora", below.lora.is_some() && self.lora.is_none()),
            ("full", below.full.is_some() && self.full.is_none()),
            ("scratch", below.scratch.is_some() && self.scratch.is_none()),
        ];
        if let Some((name, _)) = others.into_iter().find(|(_, there)| *there) {
            let got = format!("a table [{name}] in {}", path.display());
            return Err(bad("--config", format!("settings of {} alone", self.recipe.name()), got));
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
        self.formats().try_for_each(|(flag, name)| format(flag, name).map(drop))?;
        if run.seed.is_some_and(|seed| seed > i64::MAX as u64) {
            return Err(bad("--seed", format!("at most {}", i64::MAX), run.seed.unwrap_or(0)));
        }
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
    let mut before: toml::Table =
        toml::from_str(&text).map_err(|error| context(format!("cannot read {}", path.display()), error))?;
    let mut now: toml::Table = toml::from_str(&toml::to_string(settings)?)?; // as it would be read
    // how often it saves and looks, and what it writes at the end, changes nothing of what is learned
    for table in [&mut before, &mut now] {
        for (part, keys) in [("run", &["save-every", "val-every", "sample"][..]), ("lora", &["merge"])] {
            if let Some(toml::Value::Table(part)) = table.get_mut(part) {
                keys.iter().for_each(|key| drop(part.remove(*key)));
            }
        }
        for part in ["full", "scratch"] {
            if let Some(toml::Value::Table(part)) = table.get_mut(part) {
                part.remove("format");
            }
        }
    }
    if before == now {
        return Ok(());
    }
    let [was, is] = [before, now].map(|table| table.to_string().lines().map(str::to_string).collect::<Vec<_>>());
    let only = |a: &[String], b: &[String]| {
        let lines: Vec<&str> = a.iter().filter(|line| !b.contains(line)).map(String::as_str).collect();
        if lines.is_empty() { "nothing".to_string() } else { lines.join(", ") }
    };
    Err(Error::Argument {
        what: "--resume".into(),
        expected: format!("the settings of {}: {}", path.display(), only(&was, &is)),
        got: only(&is, &was),
    }
    .into())
}
