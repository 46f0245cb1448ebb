//! What several test programs share: reference data, seeded numbers, comparison, tables that report every failing row.
#![allow(dead_code)] // each test program uses a part

pub mod cases;
pub mod gpu;
pub mod tiny;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::io::Write;
use std::path::PathBuf;

/// A file of the reference data: from the folder that PEREGRINE_TEST_DATA names, else from tests/data.
pub fn find(path: &str) -> Option<PathBuf> {
    let ours = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data"));
    let folders = std::env::var_os("PEREGRINE_TEST_DATA").map(PathBuf::from).into_iter().chain([ours]);
    folders.map(|folder| folder.join(path)).find(|path| path.exists())
}

/// [`find`], and a line on standard error where there is no such file.
pub fn data(path: &str) -> Option<PathBuf> {
    let found = find(path);
    if found.is_none() {
        skipped(path);
    }
    found
}

pub fn skipped(what: &str) {
    loudly(&format!("SKIPPED: {what}: neither in the folder PEREGRINE_TEST_DATA nor in tests/data"));
}

/// A line that is seen although the test passes: the test runner keeps back what `eprintln!` says.
pub fn loudly(line: &str) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).expect("standard error can be written");
}

/// A JSON file of the reference data.
pub fn json(path: &str) -> Option<serde_json::Value> {
    let text = std::fs::read_to_string(data(path)?).expect("the reference data can be read");
    Some(serde_json::from_str(&text).expect("the reference data are JSON"))
}

/// A JSON array of numbers.
pub fn numbers(list: &serde_json::Value) -> Vec<f32> {
    list.as_array().expect("an array").iter().map(|x| x.as_f64().expect("a number") as f32).collect()
}

/// A JSON array of token ids.
pub fn ids(list: &serde_json::Value) -> Vec<u32> {
    list.as_array().expect("an array").iter().map(|x| x.as_u64().expect("an id") as u32).collect()
}

/// Seeded pseudo-random numbers.
pub struct Random(Pcg64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(Pcg64::seed_from_u64(seed))
    }

    /// From 0 up to but without `below`.
    pub fn below(&mut self, below: u32) -> u32 {
        ((self.0.next_u32() as u64 * below as u64) >> 32) as u32
    }

    /// Evenly between 0 and 1, without 0.
    pub fn uniform(&mut self) -> f32 {
        ((self.0.next_u32() >> 8) + 1) as f32 / (1 << 24) as f32
    }

    /// Normally distributed around 0 with deviation 1.
    pub fn normal(&mut self) -> f32 {
        let (radius, angle) = ((-2.0 * self.uniform().ln()).sqrt(), std::f32::consts::TAU * self.uniform());
        radius * angle.cos()
    }

    pub fn normals(&mut self, n: usize, deviation: f32) -> Vec<f32> {
        (0..n).map(|_| self.normal() * deviation).collect()
    }

    pub fn ids(&mut self, n: usize, vocab: u32) -> Vec<u32> {
        (0..n).map(|_| self.below(vocab)).collect()
    }
}

/// Whether every number lies within abs + rel * |want|, with the largest difference; else the first 5 that do not.
/// A NaN is never close.
pub fn close(name: &str, got: &[f32], want: &[f32], abs: f32, rel: f32) -> Result<f32, String> {
    if got.len() != want.len() {
        return Err(format!("{name}: {} numbers, expected {}", got.len(), want.len()));
    }
    let near = |i: usize| (got[i] - want[i]).abs() <= abs + rel * want[i].abs();
    let bad: Vec<usize> = (0..got.len()).filter(|&i| !near(i)).collect();
    let largest = (0..got.len()).map(|i| (got[i] - want[i]).abs()).fold(0.0, f32::max);
    if bad.is_empty() {
        return Ok(largest);
    }
    let first: Vec<_> = bad.iter().take(5).map(|&i| format!("[{i}] {} for {}", got[i], want[i])).collect();
    Err(format!(
        "{name}: {} of {} numbers differ by more than {abs} + {rel} relative (at most by {largest}): {}",
        bad.len(),
        got.len(),
        first.join(", ")
    ))
}

pub fn assert_close(name: &str, got: &[f32], want: &[f32], abs: f32, rel: f32) {
    if let Err(text) = close(name, got, want, abs, rel) {
        panic!("{text}");
    }
}

/// A table of cases: every row runs, and `finish` reports all that failed.
pub struct Table {
    name: &'static str,
    rows: usize,
    failures: Vec<String>,
}

impl Table {
    pub fn new(name: &'static str) -> Table {
        Table { name, rows: 0, failures: Vec::new() }
    }

    pub fn row(&mut self, row: &str, outcome: Result<(), String>) {
        self.rows += 1;
        if let Err(text) = outcome {
            self.failures.push(format!("{row}: {text}"));
        }
    }

    pub fn finish(self) {
        let Table { name, rows, failures } = self;
        eprintln!("{name}: {} of {rows} rows passed", rows - failures.len());
        assert!(failures.is_empty(), "{name}: {} of {rows} rows failed\n{}", failures.len(), failures.join("\n"));
    }
}
