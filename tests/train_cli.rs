//! `peregrine train` as people use it: what a run leaves, killed and resumed runs, what is refused. Needs a GPU adapter.

mod common;

use common::Table;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A folder of this test program alone; gone when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("peregrine train {} {name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("the temporary folder takes folders");
        Folder(path)
    }

    fn file(&self, name: &str, content: &str) -> String {
        std::fs::write(self.0.join(name), content).unwrap();
        self.path(name)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("our own name").into()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine"));
        command.args(args).current_dir(&self.0).env("PEREGRINE_CACHE_DIR", self.0.join("cache"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the binary runs")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A text with something to learn: the same few sentences, again and again.
fn tale() -> String {
    let lines = ["The fox ran over the hill.", "The hen sat on the wall.", "A king had three sons.", "It was winter."];
    (0..60).map(|i| lines[(i * 7 + i / 5) % 4].to_string() + "\n").collect()
}

/// Losses by step of what `--json` printed.
fn losses(output: &Output) -> Vec<(u64, f64)> {
    let lines = text(&output.stdout);
    let step = |line: &str| {
        let json: Json = serde_json::from_str(line).expect("one JSON object a line");
        (json["step"].as_u64().expect("a step"), json["loss"].as_f64().expect("a loss"))
    };
    lines.lines().map(step).collect()
}

fn events(path: &Path) -> Vec<Json> {
    let lines = std::fs::read_to_string(path).expect("events.jsonl");
    lines.lines().map(|line| serde_json::from_str(line).expect("one JSON object a line")).collect()
}

const SMALL: [&str; 8] = ["--ctx", "48", "--batch", "2", "--lr", "1e-2", "--seed", "3"];

/// A run of adapters on the built-in model: what it prints and leaves, and that `generate` reads it.
#[test]
fn adapters_from_beginning_to_end() {
    let folder = Folder::new("lora");
    let data = folder.file("tale.txt", &tale());
    let args = [&["train", "lora", "--data", &data, "--steps", "12", "--out", "run", "--json"][..], &SMALL].concat();
    let more =
        ["--target", "q,v,down", "--rank", "4", "--val-share", "0.2", "--save-every", "5", "--sample", "The fox"];
    let output = folder.run(&[&args[..], &more, &["--merge", "Q8_0"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let told = text(&output.stderr);
    for part in ["memory:", "activations", "validation loss", "wrote", "12 steps in", "generate --lora"] {
        assert!(told.contains(part), "{part:?} in {told}");
    }
    let curve = losses(&output);
    assert_eq!(curve.iter().map(|point| point.0).collect::<Vec<_>>(), (0..12).collect::<Vec<_>>());
    assert!(curve[11].1 < curve[0].1 * 0.8, "{curve:?}");

    let run = folder.0.join("run");
    for file in ["config.toml", "loss.svg", "checkpoint.gguf", "adapter.gguf", "model.gguf", "peft/adapter_config.json"]
    {
        assert!(run.join(file).exists(), "{file}");
    }
    assert!(std::fs::read_to_string(run.join("loss.svg")).unwrap().contains("polyline"));
    let events = events(&run.join("events.jsonl"));
    let kinds: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!((kinds[0], kinds[kinds.len() - 1]), ("run_start", "run_end"));
    for kind in ["step", "validation", "sample", "checkpoint", "export"] {
        assert!(kinds.contains(&kind), "{kind} among {kinds:?}");
    }
    assert_eq!(events[events.len() - 1]["status"], "finished");

    // PEFT has the rows of Q in the order of the model's source: the halves of a head one after the other
    let bytes = std::fs::read(run.join("peft/adapter_model.safetensors")).unwrap();
    let peft = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let gguf = peregrine::Gguf::open(run.join("adapter.gguf")).unwrap();
    for (target, module, d) in [("attn_q", "self_attn.q_proj", Some(32)), ("attn_v", "self_attn.v_proj", None)] {
        let b = gguf.floats(gguf.tensor(&format!("blk.1.{target}.weight.lora_b")).unwrap()).unwrap();
        let theirs = peft.tensor(&format!("base_model.model.model.layers.1.{module}.lora_B.weight")).expect("a tensor");
        let theirs: Vec<f32> = bytemuck::pod_collect_to_vec(theirs.data());
        assert!(b.iter().any(|&b| b != 0.0) && b.len() == theirs.len());
        for (i, row) in b.chunks(4).enumerate() {
            // row i of a head: pair i / 2, of which it is the first or second half's
            let source = d.map_or(i, |d: usize| i / d * d + i % d / 2 + i % 2 * (d / 2));
            assert_eq!(row, &theirs[source * 4..][..4], "row {i} of {target}");
        }
    }

    // unmerged and merged, the same text (Q8_0 of a Q8_0 model moves logits a little)
    let generate = |more: &[&str]| {
        let output = folder.run(&[&["generate", "-p", "The fox", "-n", "12", "--temp", "0", "--exact"], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let builtin = concat!(env!("CARGO_MANIFEST_DIR"), "/models/tales-2m.Q8_0.gguf");
    let adapted = generate(&[builtin, "--lora", &folder.path("run/adapter.gguf")]);
    assert_ne!(adapted, generate(&[builtin]), "the adapter changes the text");
    assert_eq!(adapted, generate(&[&folder.path("run/model.gguf")]));
    // further from where it ended
    let further = ["train", "lora", "--data", &data, "--steps", "6", "--from", "run/adapter.gguf", "--json"];
    let gently: Vec<&str> = SMALL.iter().map(|arg| if *arg == "1e-2" { "1e-4" } else { arg }).collect();
    let output = folder.run(&[&further[..], &gently].concat());
    let further = losses(&output);
    assert!(further.iter().all(|(_, loss)| *loss < curve[0].1 * 0.2), "{further:?} {}", text(&output.stderr));
    // and once more from its own recipe, into another folder
    let output = folder.run(&["train", "lora", "--config", "run/config.toml", "--out", "again", "--json"]);
    assert_eq!(losses(&output), curve, "{}", text(&output.stderr));
}

/// Killed at any moment and taken up again, a run goes on as if it had not been.
#[test]
fn killed_runs_go_on() {
    let folder = Folder::new("killed");
    let data = folder.file("tale.txt", &tale());
    let args = |out: &'static str| -> Vec<String> {
        let own = ["train", "lora", "--data", &data, "--steps", "24", "--save-every", "2", "--out", out, "--json"];
        let dropout = ["--dropout", "0.1"];
        [&own[..], &SMALL, &dropout].concat().into_iter().map(str::to_string).collect()
    };
    let run = |args: &[String]| {
        let output = folder.run(&args.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(output.status.success(), "{}", text(&output.stderr));
        output
    };
    let began = Instant::now();
    let whole = losses(&run(&args("whole")));
    let time = began.elapsed();
    let mut table = Table::new("killed runs");
    let kills = if std::env::var_os("PEREGRINE_KILLS").is_some() { 20 } else { 3 };
    let mut left = kills;
    for (attempt, share) in (0..).map(|i| (i, ((i * 37 + 11) % 89) as f64 / 100.0)).take(kills * 3) {
        let out = folder.0.join("killed");
        let resume = out.join("config.toml").exists();
        let mut args = args("killed");
        args.extend(resume.then(|| "--resume".to_string()));
        let mut child: Child = folder.command(&args.iter().map(String::as_str).collect::<Vec<_>>()).spawn().unwrap();
        std::thread::sleep(Duration::from_secs_f64(time.as_secs_f64() * share));
        let killed = child.try_wait().unwrap().is_none();
        child.kill().unwrap(); // SIGKILL on Unix
        child.wait().unwrap();
        if !out.join("config.toml").exists() {
            continue; // before there was a run
        }
        // what the run wrote so far is what the whole run did
        let events = std::fs::read_to_string(out.join("events.jsonl")).unwrap_or_default();
        let wrong = events.lines().filter_map(|line| serde_json::from_str::<Json>(line).ok()).find(|event| {
            let step = event["step"].as_u64().filter(|_| event["event"] == "step");
            step.is_some_and(|step| event["loss"].as_f64() != Some(whole[step as usize].1))
        });
        table.row(&format!("kill {attempt} at {share}"), wrong.map_or(Ok(()), |event| Err(event.to_string())));
        left -= killed as usize;
        if left == 0 {
            break;
        }
        if !killed {
            std::fs::remove_dir_all(&out).unwrap(); // it had ended: from the beginning
        }
    }
    table.finish();
    assert!(left < kills, "no run was killed: all had ended before");
    match folder.0.join("killed/config.toml").exists() {
        true => run(&["train", "lora", "--out", "killed", "--resume"].map(str::to_string)), // its own recipe
        false => run(&args("killed")),
    };
    let all = |run: &str| {
        let mut steps = vec![f64::NAN; 24];
        for event in events(&folder.0.join(run).join("events.jsonl")).iter().filter(|event| event["event"] == "step") {
            steps[event["step"].as_u64().unwrap() as usize] = event["loss"].as_f64().unwrap();
        }
        steps
    };
    assert_eq!(all("killed"), all("whole"));
    // with other data it would be another run
    std::fs::write(&data, tale() + "More.").unwrap();
    let output = folder.run(&["train", "lora", "--out", "killed", "--resume"]);
    assert!(text(&output.stderr).contains("were changed"), "{}", text(&output.stderr));
    let adapter = |run: &str| std::fs::read(folder.0.join(run).join("adapter.gguf")).unwrap();
    assert!(adapter("killed") == adapter("whole"), "the adapters are the same bytes");
}

/// New models and whole ones: written in a format of choice, and run.
#[test]
fn scratch_and_full() {
    let folder = Folder::new("scratch");
    let data =
        folder.file("tale.jsonl", &tale().lines().map(|line| format!("{{\"text\": {line:?}}}\n")).collect::<String>());
    let shape = ["--blocks", "1", "--embedding", "32", "--heads", "2", "--kv-heads", "1", "--head-size", "16"];
    let scratch =
        ["train", "scratch", "--data", &data, "--steps", "8", "--feed-forward", "64", "--json", "--out", "new"];
    let output = folder.run(&[&scratch[..], &shape, &SMALL, &["--architecture", "qwen3", "--format", "f16"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let curve = losses(&output);
    assert!((curve[0].1 - 2048f64.ln()).abs() < 0.1, "random weights know nothing: {curve:?}");
    assert!(curve[7].1 < curve[0].1 - 0.5, "{curve:?}");
    // a vocabulary of its own
    let own = ["train", "scratch", "--data", &data, "--vocab", "300", "--steps", "3", "--out", "own", "--json"];
    let output = folder.run(&[&own[..], &shape, &SMALL].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!((losses(&output)[0].1 - 300f64.ln()).abs() < 0.2, "{}", text(&output.stdout));
    let output = folder.run(&["tokenize", &folder.path("own/model.gguf"), "The fox ran over the hill.", "--json"]);
    let ids: Json = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(ids["ids"].as_array().expect("ids").len() < 20, "words were learned: {ids}");
    let model = folder.path("new/model.gguf");
    let full = ["train", "full", &model, "--data", &data, "--steps", "5", "--embeddings", "--recompute", "--json"];
    let output =
        folder.run(&[&full[..], &["--accum", "2", "--optimizer", "sgd", "--momentum", "0.5"], &SMALL].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let further = losses(&output);
    assert!(further[0].1 < curve[7].1 + 0.3 && further[4].1 < further[0].1, "{further:?}");
    let output =
        folder.run(&["generate", &folder.path("runs/full-1/model.gguf"), "-p", "The", "-n", "4", "--temp", "0"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// A new model on another's embeddings: the written model has them projected, and is an ordinary one.
#[test]
fn warm_start() {
    let folder = Folder::new("warm");
    let data = folder.file("tale.txt", &tale());
    let shape = ["--blocks", "1", "--embedding", "32", "--heads", "2", "--kv-heads", "1", "--head-size", "16"];
    let warm =
        ["train", "warm-start", "--data", &data, "--steps", "8", "--val-share", "0.2", "--out", "warm", "--json"];
    let output = folder.run(&[&warm[..], &shape, &SMALL].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let curve = losses(&output);
    assert!(curve[7].1 < curve[0].1 - 0.5, "{curve:?}");
    // the model as it is written has the loss that the run ended with
    let validation = |run: &str| {
        let events = events(&folder.0.join(run).join("events.jsonl"));
        events.iter().rev().find(|event| event["event"] == "validation").expect("a look")["loss"].as_f64().unwrap()
    };
    let model = folder.path("warm/model.gguf");
    let still = ["train", "full", &model, "--data", &data, "--steps", "1", "--val-share", "0.2", "--out", "still"];
    let small: Vec<&str> = SMALL.iter().map(|arg| if *arg == "1e-2" { "0" } else { arg }).collect();
    let output = folder.run(&[&still[..], &small].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let (warm, still) = (validation("warm"), validation("still"));
    assert!((warm - still).abs() < 1e-4 * warm, "{warm} in the run, {still} of the written model");
}

/// A run of its own: other settings, other data and a second run in its folder are refused, and nobody need read what it prints.
#[test]
fn a_folder_is_one_run() {
    let folder = Folder::new("one run");
    let (data, val) = (folder.file("tale.txt", &tale()), folder.file("val.txt", "The fox sat on the hill.\n"));
    let own = ["train", "lora", "--data", &data, "--val", &val, "--steps", "4", "--out", "run", "--json"];
    let args = [&own[..], &SMALL].concat();
    // the reader of its lines is gone at once
    let mut child = folder.command(&args).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let told = text(&output.stderr);
    assert!(output.status.success() && told.contains("the run goes on"), "{told}");
    assert_eq!(events(&folder.0.join("run/events.jsonl")).last().unwrap()["status"], "finished");

    let resume = || {
        let output = folder.run(&["train", "lora", "--out", "run", "--resume"]);
        (output.status.code(), text(&output.stderr))
    };
    let (code, told) = resume();
    assert!(code == Some(0) && told.contains("all steps were taken before"), "{told}");
    let change = |file: &str, from: &str, to: &str, expected: &str| {
        let path = folder.0.join(file);
        let before = std::fs::read_to_string(&path).unwrap();
        assert!(before.contains(from), "{from} in {before}");
        std::fs::write(&path, before.replace(from, to)).unwrap();
        let (code, told) = resume();
        std::fs::write(&path, before).unwrap();
        assert!(code == Some(2) && told.contains(expected), "{file}, {to}: {code:?} {told}");
    };
    change("run/config.toml", "batch = 2", "batch = 3", "config.toml was changed");
    change("val.txt", "fox", "hen", "were changed");

    // while one run is at work, no other
    let long = [&["train", "lora", "--data", &data, "--steps", "100000", "--out", "long"][..], &SMALL].concat();
    // without a terminal's hang-up, as nohup begins it
    let mut command = match cfg!(unix) {
        true => {
            let mut shell = Command::new("sh");
            let then = ["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_peregrine")];
            shell.args(then).args(&long).current_dir(&folder.0).env("PEREGRINE_CACHE_DIR", folder.0.join("cache"));
            shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            shell
        }
        false => folder.command(&long),
    };
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    let has_steps =
        || std::fs::read_to_string(folder.0.join("long/events.jsonl")).is_ok_and(|text| text.contains("\"loss\""));
    while !has_steps() && child.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(300) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let other = folder.run(&["train", "lora", "--out", "long", "--resume"]);
    assert!(text(&other.stderr).contains("another run is going on"), "{}", text(&other.stderr));
    if cfg!(unix) {
        // it lives on when the terminal goes; it ends between two steps, with a checkpoint, and its exit code says so
        let send = |signal: &str| Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(send("-HUP").success());
        std::thread::sleep(Duration::from_secs(2));
        assert!(send("-TERM").success());
        let output = child.wait_with_output().unwrap();
        let told = text(&output.stderr);
        assert!(output.status.code() == Some(130) && told.contains("stopped at step"), "{:?} {told}", output.status);
        assert_eq!(told.matches("stopping after this step").count(), 1, "of TERM alone: {told}");
        assert!(folder.0.join("long/checkpoint.gguf").exists());
        assert_eq!(events(&folder.0.join("long/events.jsonl")).last().unwrap()["status"], "interrupted");
    } else {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// What is refused, before anything is written: exit code 2, and what was wrong.
#[test]
fn refusals() {
    let folder = Folder::new("refused");
    let data = folder.file("tale.txt", &tale());
    let empty = folder.file("empty.txt", "");
    let broken = folder.file("broken.jsonl", "{\"text\": \"one\"}\n{\"text\": 2}\n");
    let recipe = folder.file("full.toml", "recipe = \"full\"\n[run]\nsteps = 2\n[full]\n");
    let twice = folder.file("twice.toml", "recipe = \"lora\"\n[run]\nsteps = 2\nepochs = 3\n");
    let chats = folder.file("chats.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}\n");
    std::fs::create_dir(folder.0.join("other")).unwrap();
    let typo = folder.file("typo.toml", "recipe = \"lora\"\n[run]\nstep = 2\n");
    let begun = ["train", "lora", "--data", &data, "--steps", "1", "--ctx", "16", "--batch", "1", "--out", "run"];
    let output = folder.run(&begun);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut table = Table::new("refusals");
    let rows: &[(&[&str], i32, &[&str])] = &[
        (&["lora"], 2, &["--data", "a file to learn from"]),
        (&["lora", "--data", "nowhere.txt"], 1, &["nowhere.txt"]),
        (&["lora", "--data", &empty], 1, &["empty.txt"]),
        (&["lora", "--data", &broken], 1, &["broken.jsonl", "2"]),
        (&["lora", "--data", &data, "--rank", "0"], 2, &["rank", "expected 1"]),
        (&["lora", "--data", &data, "--target", "q,z"], 2, &["--target", "\"z\""]),
        (&["lora", "--data", &data, "--merge", "q9"], 2, &["--merge", "Q8_0"]),
        (&["lora", "--data", &data, "--steps", "0"], 2, &["--steps"]),
        (&["lora", "--data", &data, "--steps", "1", "--epochs", "1"], 2, &["--epochs"]),
        (&["lora", "--data", &data, "--lr", "-1"], 2, &["--lr"]),
        (&["lora", "--data", &data, "--dropout", "1"], 2, &["dropout"]),
        (&["lora", "--data", &data, "--tensors", "q"], 2, &["--tensors"]),
        (&["full", "--data", &data, "--rank", "4"], 2, &["--rank"]),
        (&["full", "--data", &data, "--tensors", "attn_q,nothing"], 2, &["--tensors", "\"nothing\""]),
        (&["full", "--data", &data, "--tensors", "attn_q", "--embeddings"], 2, &["--tensors", "--embeddings"]),
        (&["lora", "--data", &data, "--target", "all,z"], 2, &["--target", "\"all\""]),
        (&["lora", "--data", &data, "--from", "a.gguf", "--rank", "4"], 2, &["--from", "--rank"]),
        (&["lora", "--data", &data, "--alpha", "0"], 2, &["alpha", "other than 0"]),
        (&["lora", "--data", &data, "--accum", "4000000000"], 2, &["--accum", "at most 65536"]),
        (&["lora", "--data", &data, "--steps", "9223372036854775808"], 2, &["--steps", "TOML"]),
        (&["lora", "--data", &data, "--steps", "5", "--warmup", "6"], 2, &["--warmup", "5 steps"]),
        (&["lora", "--data", &data, "--momentum", "0.5"], 2, &["--momentum", "--optimizer sgd"]),
        (&["lora", "--data", &data, "--optimizer", "sgd", "--beta1", "0.5"], 2, &["--beta1", "adamw"]),
        (&["lora", "--data", &data, "--val", &data, "--val-share", "0.1"], 2, &["--val", "--val-share"]),
        (&["lora", "--data", &data, "--config", &twice], 2, &["steps and epochs", "one of them"]),
        (&["lora", "--data", &data, "--kind", "documents"], 1, &["tale.txt", "line 1"]),
        (&["lora", "--data", &chats], 1, &["chats.jsonl", "--chat-template"]),
        (&["warm-start", "--data", &data, "--untied", "false"], 2, &["--untied", "true"]),
        (&["lora", "--data", &data, "--out", &data], 2, &["--out", "which is a file"]),
        (&["lora", "--out", "typo", "--resume"], 2, &["--resume", "does not exist"]),
        (&["full", "--out", "run", "--resume"], 2, &["--resume", "one for lora"]),
        (&["scratch", "--data", &data, "--vocab", "200"], 2, &["tokens of a vocabulary", "257"]),
        (&["scratch", "--data", &data, "--architecture", "gpt2"], 2, &["--architecture", "llama"]),
        (&["scratch", "--data", &data, "--heads", "5"], 1, &["head_count_kv"]),
        (&["lora", "--data", &data, "--out", "run"], 2, &["--resume goes on with it"]),
        (&["full", "--data", &data, "--out", "."], 2, &["--out", "other files"]),
        (&["lora", "--data", &data, "--merge", "Q4_K"], 2, &["--merge", "Q4_K", "rows of"]),
        (&["scratch", "--data", &data, "--format", "q6_k"], 2, &["--format", "Q6_K"]),
        (&["full", "--data", &data, "--tensors", "attn_q,"], 2, &["--tensors", "an empty one"]),
        (&["warm-start", "--data", &data, "--vocab", "300"], 2, &["donor's vocabulary"]),
        (&["lora", "--data", &data, "--batch", "256", "--ctx", "512"], 2, &["--batch times --ctx"]),
        (&["lora", "--data", &data, "--seed", "18446744073709551615"], 2, &["--seed"]),
        (&["lora", "--data", &data, "--out", "other", "--resume"], 2, &["no config.toml"]),
        (&["lora", "--data", &data, "--resume"], 2, &["--out"]),
        (&["lora", "--config", &recipe, "--data", &data], 2, &["a recipe for lora"]),
        (&["lora", "--config", &typo, "--data", &data], 1, &["typo.toml", "step"]),
        (&[&begun[1..], &["--rank", "3", "--resume"]].concat(), 2, &["--resume", "rank = 3"]),
    ];
    for (args, code, parts) in rows {
        let output = folder.run(&[&["train"], *args].concat());
        let told = text(&output.stderr);
        let outcome = match output.status.code() == Some(*code) && parts.iter().all(|part| told.contains(part)) {
            true => Ok(()),
            false => Err(format!("exit {:?}, expected {code} and {parts:?}: {told}", output.status.code())),
        };
        table.row(&args.join(" "), outcome);
    }
    table.finish();
    for name in ["new", "runs"] {
        assert!(!folder.0.join(name).exists(), "{name} was made");
    }
    // generate refuses what is no adapter of the model
    let output = folder.run(&["generate", "--lora", concat!(env!("CARGO_MANIFEST_DIR"), "/models/tales-2m.Q8_0.gguf")]);
    assert!(text(&output.stderr).contains("general.type"), "{}", text(&output.stderr));
}
