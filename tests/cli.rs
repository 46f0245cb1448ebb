//! The binary as people and programs use it: exit codes, outputs, error texts, the use cases. Needs a GPU adapter;
//! without one these tests fail.

mod common;

use common::{Table, data, ids, json};
use serde_json::{Value as Json, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn peregrine(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine"));
    // the user's own cache stays out of the tests
    command.args(args).stdin(Stdio::null()).env("PEREGRINE_CACHE_DIR", cache_folder("shared"));
    command
}

fn cache_folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("peregrine cache {} {name}", std::process::id()))
}

fn run(args: &[&str]) -> Output {
    peregrine(args).output().expect("the binary runs")
}

/// Runs with these bytes on standard input.
fn run_with(args: &[&str], input: &[u8]) -> Output {
    let mut command = peregrine(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

/// A file of this test program alone; gone when dropped.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, content: impl AsRef<[u8]>) -> TempFile {
        let path = std::env::temp_dir().join(format!("peregrine {} {name}", std::process::id()));
        std::fs::write(&path, content).expect("the temporary folder takes files");
        TempFile(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("our own name")
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Standard output as JSON, after a success.
fn json_of(args: &[&str]) -> Result<Json, String> {
    let out = run(args);
    if !out.status.success() {
        return Err(format!("{:?}: {}", out.status.code(), text(&out.stderr)));
    }
    serde_json::from_slice(&out.stdout).map_err(|e| format!("{e}: {}", text(&out.stdout)))
}

fn tales() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models/tales-2m.Q8_0.gguf").display().to_string()
}

fn variant(file: &str) -> Option<String> {
    data(&format!("variants/{file}")).map(|path| path.display().to_string())
}

/// (arguments, exit code, what standard error says)
type Case<'a> = (Vec<&'a str>, i32, Vec<&'a str>);

fn check(table: &mut Table, cases: Vec<Case>) {
    for (args, code, words) in cases {
        let out = run(&args);
        let stderr = text(&out.stderr);
        let missing = words.iter().find(|word| !stderr.contains(**word));
        let outcome = match (out.status.code(), missing) {
            (got, _) if got != Some(code) => Err(format!("exit {got:?}, expected {code}: {stderr}")),
            (_, Some(word)) => Err(format!("{word:?} is not in {stderr:?}")),
            _ if stderr.contains("panicked") => Err(stderr.clone()),
            _ => Ok(()),
        };
        table.row(&args.join(" "), outcome);
    }
}

#[test]
fn bad_usage_and_failures() {
    let tales = tales();
    let mut table = Table::new("errors");
    let cases: Vec<Case> = vec![
        (vec![], 2, vec!["Usage"]),
        (vec!["sing"], 2, vec!["sing"]),
        (vec!["generate", "--temp", "warm"], 2, vec!["--temp"]),
        (
            vec!["generate", &tales, "-p", "a", "-n", "2", "--temp=-1"],
            2,
            vec!["temperature", "0 (greedy) or more", "-1"],
        ),
        (vec!["generate", &tales, "-p", "a", "-n", "2", "--stop", ""], 2, vec!["stop"]),
        (vec!["generate", &tales, "-p", "a", "--prompt-ids", "1"], 2, vec!["cannot be used with"]),
        (vec!["generate", &tales, "--prompt-ids", "1 x"], 2, vec!["token ids", "\"x\""]),
        (vec!["generate", &tales, "--prompt-ids", "2048"], 2, vec!["token id", "2048"]),
        (vec!["generate", &tales], 2, vec!["prompt"]),
        (vec!["generate", "/no/such modèle 🦙.gguf", "-p", "a"], 1, vec!["/no/such modèle 🦙.gguf", "No such file"]),
        (vec!["generate", "/", "-p", "a"], 1, vec!["folder"]),
        (vec!["generate", &tales, "-p", "a", "--gpu", "no such card"], 2, vec!["GPU adapter", "no such card", "0: "]),
        (vec!["generate", &tales, "-p", "a", "--gpu", "99"], 2, vec!["the index of one that is there (0: ", "99"]),
        (
            vec!["generate", &tales, "--ctx", "4", "-p", "a long enough prompt to fill four places"],
            1,
            vec!["context of 4"],
        ),
        (vec!["detokenize", &tales, "9999"], 2, vec!["9999", "2048"]),
        (vec!["chat", &tales, "-p", "hi"], 1, vec!["template", "--chat-template"]),
        (vec!["render", "--template", "/no.jinja", "--messages", "/no.json"], 1, vec!["/no.jinja"]),
        (vec!["bench", &tales, "-p", "0"], 2, vec!["--prompt", "0 is not in 1.."]),
        (
            vec!["bench", &tales, "-p", "8", "-n", "4", "--ctx", "11"],
            1,
            vec!["context of 11", "12 more wanted", "--tokens"],
        ),
        (vec!["bench", &tales, "--trace", "/no/trace.json"], 1, vec!["cannot write /no/trace.json"]),
        (vec!["explain", &tales, "--gbps", "-1", "--tflops", "1"], 2, vec!["--gbps", "0.001 to 1000000000"]),
        (
            vec!["explain", &tales, "--gbps", "1e300", "--tflops", "1"],
            2,
            vec!["--gbps", "1e300", "0.001 to 1000000000"],
        ),
        (vec!["explain", &tales, "--gbps", "1", "--tflops", "1e-320"], 2, vec!["--tflops", "1e-320", "0.001 to"]),
        (vec!["explain", &tales, "--gbps", "1", "--tflops", "nan"], 2, vec!["--tflops", "0.001 to"]),
        (
            vec!["explain", &tales, "--gbps", "1", "--tflops", "1", "--dispatch-us", "inf"],
            2,
            vec!["--dispatch-us", "0.001 to 1000000000, or 0"],
        ),
        (vec!["explain", &tales, "--gbps", "1"], 2, vec!["--tflops"]),
        (vec!["explain", &tales, "--dispatch-us", "1"], 2, vec!["--gbps"]),
        (vec!["explain", &tales, "-p", "0"], 2, vec!["--prompt"]),
        (vec!["explain", &tales, "--ctx", "100"], 1, vec!["context of 100", "513 more wanted", "--position"]),
        (
            vec!["explain", &tales, "--gbps", "1", "--tflops", "1", "--ctx", "4294967295"],
            1,
            vec!["bytes, but", "of a described GPU is"],
        ),
        (vec!["generate", &tales, "-p", "a", "--exact", "--kv", "f16"], 2, vec!["--exact", "--kv"]),
        (vec!["generate", &tales, "-p", "a", "--gpu", ""], 2, vec!["--gpu"]),
        (vec!["generate", &tales, "--prompt-ids", "1,,2"], 2, vec!["token ids", "\"\""]),
        (vec!["tune", &tales, "--exact"], 2, vec!["--exact", "leave the flag out"]),
        (vec!["tune", &tales, "--no-tune"], 2, vec!["--no-tune", "leave the flag out"]),
        (vec!["tune", &tales, "--ctx", "4"], 2, vec!["--ctx", "serves every context"]),
        (vec!["tune", &tales, "--kv", "q8_0"], 2, vec!["--kv", "every type of cache"]),
        (vec!["tune", &tales, "--seconds", "-1"], 2, vec!["--seconds", "-1 is not in 0.."]),
        (vec!["generate", &tales, "-p", "a", "-n", "-2"], 2, vec!["-2"]),
        (vec!["generate", &tales, "-p", "a", "--ctx", "-1"], 2, vec!["--ctx", "-1 is not in 0.."]),
        (vec!["chat", &tales, "-n", "-1"], 2, vec!["--tokens", "-1 is not in 0.."]),
        (vec!["logits", &tales, "-p", "a", "--top", "0"], 2, vec!["--top", "0 is not in 1.."]),
        (vec!["trace", &tales, "-p", "a", "--taps", "blk.6.*"], 2, vec!["\"blk.6.*\"", "N from 0 to 5", "resid_post"]),
        (vec!["trace", &tales, "-p", "a", "--cka", "logits", "x"], 2, vec!["--cka", "\"logits\"", "blk.0.resid_post"]),
        (vec!["trace", &tales, "-p", "a"], 0, vec![]),
        (vec!["trace", &tales], 2, vec!["prompt"]),
        (vec!["trace", &tales, "-p", "a", "--mode", "both"], 2, vec!["both", "prefill, decode, sequence"]),
        (vec!["trace", &tales, "-p", "a", "--with", "/no.safetensors"], 1, vec!["/no.safetensors", "No such file"]),
        (vec!["trace", &tales, "-p", "a", "--with", &tales], 1, vec!["tales-2m", "no file that --out wrote"]),
        (vec!["trace", &tales, "-p", "a", "--out", &tales], 2, vec!["--out", "a GGUF model"]),
        (vec!["trace", &tales, "-p", "a", "--out", "/"], 2, vec!["--out", "a folder"]),
        (
            vec!["trace", &tales, "--prompt-ids", "5", "--cka", "blk.0.resid_post", "blk.1.resid_post"],
            2,
            vec!["two rows"],
        ),
        (vec!["generate", &tales, "-e", "-p", r"a\q"], 2, vec!["escape", r"\q", r"\xHH"]),
        (vec!["generate", &tales, "-f", "/no.txt"], 1, vec!["/no.txt", "No such file"]),
        (vec!["generate", &tales, "-p", "a", "--ctx", "4294967295"], 1, vec!["4294967295", "smaller context"]),
        (vec!["generate", &tales, "-p", "a", "--top-p", "1.5"], 2, vec!["top_p", "0 to 1", "1.5"]),
        (vec!["inspect", "/no.gguf"], 1, vec!["/no.gguf", "caused by: No such file"]),
        (vec!["render", "--messages", "/no.json"], 2, vec!["MODEL"]),
        (
            vec!["render", &tales, "--chat-template", "nope", "--messages", "/no.json"],
            1,
            vec!["nope", "chatml, llama2"],
        ),
        (vec!["debug", "compare", &tales, "--tolerance", "nan"], 2, vec!["--tolerance", "0 or more"]),
        (
            vec!["debug", "synth", "--shape", "huge", "--format", "Q4_K", "--out", "x"],
            2,
            vec!["huge", "tiny, 1b, 3b, 8b"],
        ),
        (vec!["debug", "synth", "--shape", "tiny", "--format", "Q3_K", "--out", "x"], 2, vec!["Q3_K", "Q4_0", "Q6_K"]),
        (vec!["debug", "synth", "--shape", "tiny", "--format", "F16", "--out", "/"], 2, vec!["--out", "folder"]),
        (vec!["debug", "synth", "--shape", "tiny", "--format", "F16", "--out", "/no/x"], 1, vec!["/no/x", "3.7 MB"]),
        (vec!["render", "--template", "chatml", "--messages", "/no.json"], 1, vec!["/no.json"]),
    ];
    check(&mut table, cases);
    table.finish();
}

/// A pipe, a link, a folder, a model: refused before anything is written, and as they were afterwards.
#[cfg(unix)]
#[test]
fn what_no_output_replaces() {
    let folder = std::env::temp_dir().join(format!("peregrine {} outputs", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let path = |name: &str| folder.join(name).display().to_string();
    let [model, hard, soft, dangling, pipe, new] = ["m.gguf", "hard", "soft", "dangling", "pipe", "new"].map(path);
    let bytes = std::fs::read(tales()).unwrap();
    std::fs::write(&model, &bytes).unwrap();
    std::fs::hard_link(&model, &hard).unwrap();
    std::os::unix::fs::symlink(&model, &soft).unwrap();
    std::os::unix::fs::symlink(path("nothing"), &dangling).unwrap();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());

    let folder_name = folder.display().to_string();
    let synth = |out| vec!["debug", "synth", "--shape", "tiny", "--format", "F16", "--out", out];
    let trace = |out| vec!["bench", &model, "-p", "4", "-n", "2", "-r", "1", "--trace", out];
    let mut table = Table::new("outputs");
    let cases: Vec<Case> = vec![
        (synth(&soft), 2, vec!["--out", &soft, "a link: name the file that it leads to"]),
        (synth(&dangling), 2, vec!["--out", &dangling, "a link"]),
        (synth(&pipe), 2, vec!["--out", &pipe, "no regular file"]),
        (trace(&model), 2, vec!["--trace", &model, "a GGUF model"]),
        (trace(&hard), 2, vec!["--trace", &hard, "a GGUF model"]),
        (trace(&soft), 2, vec!["--trace", &soft, "a GGUF model"]),
        (trace(&pipe), 2, vec!["--trace", &pipe, "no regular file"]),
        (trace(&folder_name), 2, vec!["--trace", "a folder"]),
        (vec!["bench", "/no.gguf", "--trace", &new], 1, vec!["/no.gguf"]),
        (vec!["bench", &model, "--ctx", "1", "--trace", &new], 1, vec!["context of 1"]),
    ];
    check(&mut table, cases);
    table.finish();
    assert!(std::fs::read(&model).unwrap() == bytes, "the model is as it was");
    for link in [&soft, &dangling] {
        assert!(std::fs::symlink_metadata(link).unwrap().is_symlink(), "{link}");
    }
    assert!(!Path::new(&new).exists() && !Path::new(&path("nothing")).exists(), "a failure leaves no file");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_story_without_any_argument() {
    let out = run(&["generate", "-n", "12", "--seed", "7"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let story = text(&out.stdout);
    assert!(story.starts_with("Once upon a time") && story.ends_with('\n') && story.len() > 30, "{story:?}");
    assert!(
        text(&out.stderr).contains("[12 tokens, ") && text(&out.stderr).contains("seed 7"),
        "{}",
        text(&out.stderr)
    );
    assert!(text(&run(&["generate", "-n", "1"]).stderr).contains("[1 token, "));
    assert_eq!(story, text(&run(&["generate", "-n", "12", "--seed", "7"]).stdout), "the same seed, the same story");
    let other = |_| text(&run(&["generate", "-n", "24"]).stdout);
    let stories: Vec<String> = (0..3).map(other).collect();
    assert!(stories.iter().any(|s| *s != stories[0]), "without a seed stories differ");
}

#[test]
fn generate_as_json() {
    let tales = tales();
    let reference = json("tales_reference.json").expect("a file of ours");
    let case = &reference["prompts"][0];
    let prompt = case["prompt"].as_str().unwrap();
    let got = json_of(&["generate", &tales, "-p", prompt, "-n", "8", "--temp", "0", "--exact", "--json"]).unwrap();
    assert_eq!(ids(&got["prompt_ids"]), ids(&case["token_ids"]));
    assert_eq!(ids(&got["ids"]), ids(&case["numpy_f32_on_q8_0"]["greedy32"])[..8]);
    assert!(case["numpy_f32_on_q8_0"]["text"].as_str().unwrap().starts_with(got["text"].as_str().unwrap()));
    assert_eq!(got["stop"], "length");
    for figure in ["prefill_tps", "decode_tps", "load_ms", "first_token_ms"] {
        assert!(got["stats"][figure].as_f64().unwrap() > 0.0, "{figure}: {got}");
    }
}

/// The options of `generate`, one row each: (what, arguments, what the object shows).
#[test]
fn generate_options() {
    let tales = tales();
    let generate = |more: &[&str]| {
        let mut args = vec!["generate", &tales, "--json", "--temp", "0"];
        args.extend(more);
        json_of(&args)
    };
    let expect = |got: Result<Json, String>, check: &dyn Fn(&Json) -> bool| {
        got.and_then(|got| if check(&got) { Ok(()) } else { Err(got.to_string()) })
    };
    let count = |got: &Json| got["ids"].as_array().unwrap().len();
    let greedy = generate(&["-p", "The king", "-n", "20"]).unwrap();
    let story = greedy["text"].as_str().unwrap().to_string();
    let mut table = Table::new("generate");

    table.row("zero tokens", expect(generate(&["-p", "a", "-n", "0"]), &|got| count(got) == 0 && got["text"] == ""));
    for seed in ["1", "2", "3"] {
        let got = generate(&["-p", "The king", "-n", "20", "--seed", seed]);
        table.row("temperature 0 ignores the seed", expect(got, &|got| got["ids"] == greedy["ids"]));
    }
    let long: Vec<String> = (0..32).map(|i| (i + 5).to_string()).collect();
    let long = long.join(" ");
    let full = generate(&["--prompt-ids", &long, "--ctx", "32", "-n", "8"]);
    table.row("prompt exactly fills the context", expect(full, &|got| count(got) == 1 && got["stop"] == "length"));
    let fills = generate(&["--prompt-ids", &long[..long.len() / 2], "--ctx", "32", "-n", "100", "--ignore-eos"]);
    table.row(
        "context fills while generating",
        expect(fills, &|got| got["prompt_ids"].as_array().unwrap().len() + count(got) == 33 && got["stop"] == "length"),
    );
    table.row(
        "context 0 is the trained length",
        expect(generate(&["-p", "a", "--ctx", "0", "-n", "2"]), &|got| count(got) == 2),
    );

    // a stop string over a token border: cut exactly
    let at = story.char_indices().nth(story.chars().count() / 2).unwrap().0;
    let stop: String = story[at..].chars().take(7).collect();
    let cut = story.find(&stop).unwrap();
    let got = generate(&["-p", "The king", "-n", "20", "--stop", &stop]);
    table.row("stop string", expect(got, &|got| got["stop"] == "stop" && got["text"] == story[..cut]));
    let got = generate(&["-p", "The king", "-n", "20", "--stop", "no such words"]);
    table.row("held text is given back", expect(got, &|got| got["text"] == story));
    let ended = generate(&["--prompt-ids", "0", "-n", "60", "--ignore-eos"]);
    table.row("ignore eos", expect(ended, &|got| count(got) == 60 && !ids(&got["ids"]).contains(&0)));

    let plain = generate(&["-p", r"a\nb", "-n", "1"]).unwrap();
    let escaped = generate(&["-e", "-p", r"a\nb", "-n", "1"]).unwrap();
    let newline = generate(&["-p", "a\nb", "-n", "1"]).unwrap();
    let differ = plain["prompt_ids"] != newline["prompt_ids"] && escaped["prompt_ids"] == newline["prompt_ids"];
    table.row("backslash n", if differ { Ok(()) } else { Err(format!("{plain} {escaped} {newline}")) });

    let file = TempFile::new("prompt.txt", "The king\n");
    let got = generate(&["-f", file.path(), "-n", "20"]);
    table.row("prompt from a file", expect(got, &|got| got["ids"] == greedy["ids"]));
    let got = generate(&["-p", "The king", "-n", "20", "--repeat-penalty", "1.5"]);
    table.row("repeat penalty", expect(got, &|got| got["ids"] != greedy["ids"]));
    for kv in [&["--kv", "f32"][..], &["--exact"]] {
        let got = generate(&[&["-p", "The king", "-n", "6"], kv].concat());
        table.row(&kv.join(" "), expect(got, &|got| ids(&got["ids"]) == ids(&greedy["ids"])[..6]));
    }
    table.finish();
}

/// What a use case of the reference data shows in the command line.
fn use_case(case: &Json) -> Option<Result<(), String>> {
    let file = |name: &str| variant(name).expect("the folder of use_cases.json has the variants");
    let (base, spm) = (file("base.gguf"), file("spm_base.gguf"));
    let tales = tales();
    let expect = |ok: bool, got: &dyn std::fmt::Debug| if ok { Ok(()) } else { Err(format!("{got:?}")) };
    let fails = |args: &[&str], words: &[&str]| {
        let out = run(args);
        let (code, stderr) = (out.status.code(), text(&out.stderr));
        let told = matches!(code, Some(1 | 2)) && words.iter().all(|word| stderr.contains(word));
        expect(told && !stderr.contains("panicked"), &(code, stderr))
    };
    let tokenize = |model: &str, bytes: &[u8], more: &[&str], want: &[u32]| {
        let out = run_with(&[&["tokenize", model, "-", "--json"], more].concat(), bytes);
        let got: Json = serde_json::from_slice(&out.stdout).map_err(|_| text(&out.stderr))?;
        expect(ids(&got["ids"]) == want, &got)
    };
    let generate = |more: &[&str]| json_of(&[&["generate", "--json", "--temp", "0", "--exact"], more].concat());
    let count = |got: &Json| got["ids"].as_array().map_or(0, Vec::len);
    let from_case = |case: &Json| {
        let prompt: Vec<String> = ids(&case["prompt_ids"]).iter().map(u32::to_string).collect();
        let want = ids(&case["greedy"]);
        let n = want.len().to_string();
        let got = generate(&[&base, "--prompt-ids", &prompt.join(" "), "-n", &n, "--ignore-eos"])?;
        expect(ids(&got["ids"]) == want, &got)
    };
    let of = |got: Result<Json, String>, ok: &dyn Fn(&Json) -> bool| got.and_then(|got| expect(ok(&got), &got));
    let numbers = |n: usize| (0..n).map(|i| (i + 5).to_string()).collect::<Vec<_>>().join(" ");
    Some(match case["what"].as_str()? {
        "greedy continuation, fixed" | "prompt of one BOS/special token only" => from_case(case),
        "empty prompt, model adds no BOS" => fails(&["generate", &base, "-p", ""], &["a text, or a BOS", "adds none"]),
        "empty prompt, model adds BOS" => {
            of(generate(&[&spm, "-p", "", "-n", "2"]), &|got| got["prompt_ids"] == case["prompt_ids"])
        }
        "prompt exactly fills the context" => {
            of(generate(&[&base, "--prompt-ids", &numbers(32), "--ctx", "32", "-n", "8", "--ignore-eos"]), &|got| {
                count(got) == 1 && got["stop"] == "length"
            })
        }
        // position 32 is not in the cache: its token is chosen, and shown, but never fed back
        "context fills while generating" => {
            of(generate(&[&base, "--prompt-ids", &numbers(20), "--ctx", "32", "-n", "100", "--ignore-eos"]), &|got| {
                count(got) == 13 && got["stop"] == "length"
            })
        }
        "context 0" => {
            let filled = ["--ctx", "0", "--prompt-ids", &numbers(250), "-n", "-1", "--ignore-eos"];
            of(generate(&[&[&base[..]], &filled[..]].concat()), &|got| count(got) == 7 && got["stop"] == "length")
        }
        "zero tokens wanted" => of(generate(&[&base, "-p", "a", "-n", "0"]), &|got| count(got) == 0),
        "temperature 0 ignores the seed" => {
            let text = |seed| generate(&[&base, "-p", "a", "-n", "8", "--seed", seed]).map(|got| got["ids"].clone());
            let texts = ["1", "2", "3"].map(text);
            expect(texts[0].is_ok() && texts.iter().all(|text| *text == texts[0]), &texts)
        }
        "temperature below 0" => fails(&["generate", &base, "-p", "a", "--temp", "-1"], &["temperature", "-1"]),
        "no seed given" => {
            let run = || json_of(&["generate", &base, "-p", "a", "--temp", "0.8", "-n", "20", "--json"]);
            let (a, b) = (run().ok()?, run().ok()?);
            expect(a["seed"] != b["seed"] && a["seed"].is_u64(), &(a, b))
        }
        "repeat penalty sees the prompt" => {
            // greedy goes on with 200 again, unless the prompt counts
            let prompt = [&base[..], "--prompt-ids", "83 71 68 269 200", "-n", "1"];
            let plain = generate(&prompt).ok()?;
            let got = generate(&[&prompt[..], &["--repeat-penalty", "1000"]].concat()).ok()?;
            expect(plain["ids"] == json!([200]) && got["ids"] != json!([200]), &(plain, got))
        }
        "ignore end of generation" => {
            // the next token of this prompt is 284, <|eot_id|>, which is an end token beside EOS
            let model = file("tok_eos_wrong_llama3.gguf");
            let prompt = [&model[..], "--prompt-ids", "165 77 202 24 37 274 48 187 29", "-n", "20"];
            let plain = generate(&prompt).ok()?;
            let barred = generate(&[&prompt[..], &["--ignore-eos"]].concat()).ok()?;
            let free = !ids(&barred["ids"]).iter().any(|id| [280, 282, 284].contains(id));
            expect(plain["stop"] == "eos" && count(&plain) == 0 && count(&barred) == 20 && free, &(plain, barred))
        }
        "special token given as stop string" => {
            let model = file("tok_eos_wrong_llama3.gguf");
            let prompt = [&model[..], "--prompt-ids", "165 77 202 24 37 274 48 187 29", "--ignore-eos"];
            let got = generate(&[&prompt[..], &["-n", "20", "--stop", "<|eot_id|>"]].concat());
            of(got, &|got| got["stop"] == "stop" && count(got) == 0 && got["text"] == "")
        }
        "stop string over a token border" => {
            let whole = generate(&[&tales, "-p", "The king", "-n", "20"]).ok()?;
            let whole = whole["text"].as_str()?;
            let at = whole.char_indices().nth(whole.chars().count() / 2)?.0;
            let stop: String = whole[at..].chars().take(7).collect();
            let before = &whole[..whole.find(&stop)?];
            let args = ["generate", &tales, "-p", "The king", "-n", "20", "--temp", "0", "--exact", "--stop", &stop];
            let shown = text(&run(&args).stdout); // as a stream
            expect(shown == format!("The king{before}\n"), &(shown, stop))
        }
        "empty stop string" => fails(&["generate", &base, "-p", "a", "--stop", ""], &["stop string", "empty"]),
        // 222 is byte 0x80, 64 is "a"
        "a stray continuation byte" => {
            of(json_of(&["detokenize", &base, "222 64", "--json"]), &|got| got["text"] == "\u{fffd}a")
        }
        "control token in plain text"
        | "unused token's text"
        | "case matters in special tokens"
        | "NUL inside a prompt"
        | "composed and decomposed" => {
            let plain: &[&str] = if case["parse_special"] == json!(false) { &["--no-special"] } else { &[] };
            tokenize(&base, case["text"].as_str()?.as_bytes(), plain, &ids(&case["ids"]))
        }
        "invalid UTF-8 prompt, SPM" => tokenize(&spm, b"\x61\xe6\xad", &[], &ids(&case["ids"])),
        "SPM and a leading space" => {
            tokenize(&spm, b"the cat", &[], &[1, 265, 271]).and(tokenize(&spm, b" the cat", &[], &[1, 259, 265, 271]))
        }
        "BOS typed and added" => {
            let model = file("spm_template_with_bos.gguf");
            let warned = text(&run(&["tokenize", &model, "<s>the cat"]).stderr);
            let chat = run(&["chat", &model, "-p", "the cat", "-n", "1"]);
            tokenize(&model, b"<s>the cat", &[], &[1, 1, 265, 271])
                .and(expect(warned.contains("warning: ") && warned.contains("twice"), &warned))
                .and(expect(chat.status.success() && !text(&chat.stderr).contains("twice"), &chat))
        }
        "round trip" => {
            let bytes = "Zoë fährt über Łódź\n日本語 한국어\n👩‍👩‍👧 \t\u{301}\n".as_bytes();
            let out = run_with(&["tokenize", &base, "-", "--no-special", "--json"], bytes);
            let got: Json = serde_json::from_slice(&out.stdout).ok()?;
            let list: Vec<String> = ids(&got["ids"]).iter().map(u32::to_string).collect();
            let back = run(&["detokenize", &base, &list.join(" ")]);
            expect(back.stdout == bytes, &back)
        }
        "template without system role" => {
            let source = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role here') }}\
                          {% endif %}{{ m.content }}{% endfor %}";
            let template = TempFile::new("raises.jinja", source);
            let chat = ["chat", &base, "--chat-template", template.path(), "-p", "hi", "-n", "1"];
            fails(&[&chat[..], &["--system", "be brief"]].concat(), &["no system role here"])
                .and(expect(run(&chat).status.success(), &"without a system message it works"))
                .and(expect(run(&["generate", &base, "-p", "a", "-n", "1"]).status.success(), &"completion works"))
        }
        "no template" => {
            fails(&["chat", &file("chat_template_missing.gguf"), "-p", "hi"], &["no chat template", "--chat-template"])
        }
        "named template" => {
            let model = file("chat_templates_named.gguf");
            let messages = TempFile::new("named.json", r#"{"messages":[{"role":"user","content":"x"}]}"#);
            let render = ["render", &model, "--messages", messages.path()];
            let tools = text(&run(&[&render[..], &["--template-name", "tool_use"]].concat()).stdout);
            let usual = text(&run(&render).stdout);
            fails(&["chat", &model, "-p", "hi", "--template-name", "poem"], &["poem", "default", "tool_use"])
                .and(expect(tools == format!("TOOLS{usual}") && usual.starts_with("<|im_start|>user"), &tools))
        }
        "closed pipe" => closed_pipe(&["generate", "-n", "200"]),
        "end of input" => {
            let ended = run(&["chat", &base]);
            expect(ended.status.success() && ended.stdout.is_empty(), &ended)
        }
        "backslash n in -p" => {
            let of = |more: &[&str]| generate(&[&[&base[..], "-n", "1", "-p", r"a\nb"], more].concat());
            let (plain, escaped) = (of(&[]).ok()?, of(&["-e"]).ok()?);
            let backslash = 59; // of base.gguf's vocabulary: !, ", #, .. are 0, 1, 2, ..
            let (plain, escaped) = (ids(&plain["prompt_ids"]), ids(&escaped["prompt_ids"]));
            expect(plain.contains(&backslash) && !escaped.contains(&backslash), &(plain, escaped))
        }
        "a folder, a missing path, no permission" => {
            let folder = fails(&["inspect", "/tmp"], &["/tmp", "folder"]);
            let missing = fails(&["inspect", "/no/such.gguf"], &["/no/such.gguf", "No such file"]);
            folder.and(missing) // the third has a test of its own
        }
        "path with spaces, accents, emoji" => {
            let name = "names/modèle 模型 (copy) 🦙.gguf";
            let told = run(&["generate", &format!("/no/{name}"), "-p", "a"]);
            of(generate(&[&file(name), "-p", "a", "-n", "1"]), &|got| count(got) == 1)
                .and(expect(text(&told.stderr).contains(name), &told))
        }
        // those of the library's parts: tests/sampling.rs, tests/tokenizer.rs, tests/chat.rs; the shrinking file below
        "top_k 0"
        | "top_p 0 and 1"
        | "min_p before temperature"
        | "repeat penalty on both signs"
        | "repeat window"
        | "ties at temperature 0"
        | "stop string begins inside one token and more follows"
        | "emoji over several tokens"
        | "user text with control tokens"
        | "file shrinks or is replaced while open" => return None,
        _ => Err("a use case that no test knows".into()),
    })
}

#[test]
fn use_cases() {
    let Some(cases) = json("use_cases.json") else { return };
    let mut table = Table::new("use cases");
    for case in cases.as_array().unwrap() {
        if let Some(outcome) = use_case(case) {
            table.row(case["what"].as_str().unwrap(), outcome);
        }
    }
    table.finish();
}

#[test]
fn odd_models() {
    let mut table = Table::new("odd models");
    let row = |table: &mut Table, file: &str, args: &[&str], code: i32, words: &[&str]| {
        let Some(path) = variant(file) else { return };
        check(table, vec![([&args[..1], &[&path[..]], &args[1..]].concat(), code, words.to_vec())]);
    };
    row(&mut table, "tok_none.gguf", &["generate", "--prompt-ids", "57 68", "-n", "3"], 0, &["3 tokens"]);
    row(&mut table, "tok_none.gguf", &["generate", "-p", "text"], 1, &["no vocabulary", "ids"]);
    row(&mut table, "tensor_nan_weight.gguf", &["generate", "-p", "a", "--temp", "0"], 1, &["not finite"]);
    row(&mut table, "tensor_nan_weight.gguf", &["generate", "-p", "a", "--temp", "1"], 1, &["not finite"]);
    row(&mut table, "tensor_nan_weight.gguf", &["logits", "-p", "a"], 1, &["not finite"]);
    row(&mut table, "tensor_nan_weight.gguf", &["logits", "-p", "a", "--exact"], 1, &["not finite"]);
    row(&mut table, "chat_template_broken.gguf", &["chat", "-p", "hi"], 1, &["chat template", "line 1"]);
    row(&mut table, "chat_template_broken.gguf", &["generate", "-p", "a", "-n", "1"], 0, &[]);
    for command in ["generate", "logits", "chat"] {
        let cannot = ["error: cannot load ", "kind_mmproj.gguf", "\n  caused by: ", "projector"];
        row(&mut table, "kind_mmproj.gguf", &[command, "-p", "a"], 1, &cannot);
    }
    row(&mut table, "kind_mmproj.gguf", &["bench"], 1, &["projector"]);
    row(&mut table, "kind_mmproj.gguf", &["inspect"], 0, &[]);
    row(&mut table, "kind_embedding_bert.gguf", &["generate", "-p", "a"], 1, &["embedding model"]);
    row(&mut table, "tensor_extra_unused.gguf", &["generate", "-p", "a", "-n", "1"], 0, &["unused_thing"]);
    row(&mut table, "bytes_data_cut.gguf", &["generate", "-p", "a"], 1, &["still downloading"]);
    row(&mut table, "tok_pre_unknown.gguf", &["generate", "-p", "a"], 1, &["vocabulary of", "brand-new-pre"]);
    row(&mut table, "tok_pre_unknown.gguf", &["generate", "--prompt-ids", "5", "-n", "2"], 0, &["2 tokens"]);
    table.finish();
}

#[test]
fn logits_as_json() {
    let tales = tales();
    let all =
        json_of(&["logits", &tales, "--prompt-ids", "0 5 6", "--all", "--top", "3", "--exact", "--json"]).unwrap();
    let last = json_of(&["logits", &tales, "--prompt-ids", "0 5 6", "--top", "3", "--exact", "--json"]).unwrap();
    let positions = all["positions"].as_array().unwrap();
    assert_eq!(positions.iter().map(|p| p["pos"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(last["positions"].as_array().unwrap().len(), 1);
    let (a, b) = (&positions[2]["top"], &last["positions"][0]["top"]);
    for i in 0..3 {
        assert_eq!(a[i][0], b[i][0]);
        assert!((a[i][1].as_f64().unwrap() - b[i][1].as_f64().unwrap()).abs() < 1e-3);
    }
}

/// One run's file is another's to compare with; the three ways through a prompt give the same.
#[test]
fn trace_writes_what_trace_compares() {
    let tales = tales();
    let file = TempFile::new("acts.safetensors", "");
    let run_tapped = |more: &[&str]| {
        let args = ["trace", &tales, "--prompt-ids", "0 1424 325 667 259 516", "--exact", "--json", "--taps"];
        json_of(&[&args[..], more].concat()).unwrap()
    };
    let taps = "blk.0.*,blk.*.resid_post,logits";
    let written = run_tapped(&[taps, "--mode", "decode", "--out", file.path()]);
    let names: Vec<&str> = written["taps"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 5 + 5 + 1);
    assert_eq!((names[3], names[5], names[10]), ("blk.0.ffn_out", "blk.1.resid_post", "logits"));
    let shape = |all: &Json, tap: usize| all["taps"][tap]["shape"].clone();
    assert_eq!((shape(&written, 0), shape(&written, 10)), (json!([6, 192]), json!([6, 2048])));

    let bytes = std::fs::read(file.path()).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let metadata = header.metadata().as_ref().unwrap();
    let told = ["ids", "mode", "model"].map(|key| metadata[key].as_str());
    assert_eq!(told, ["0 1424 325 667 259 516", "decode", "tales-2m.Q8_0.gguf"]);
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let values: Vec<f32> = bytemuck::pod_collect_to_vec(tensors.tensor("blk.0.ffn_out").unwrap().data());
    let l2 = values.iter().map(|&v| v as f64 * v as f64).sum::<f64>().sqrt();
    assert!((written["taps"][3]["l2"].as_f64().unwrap() - l2).abs() < 1e-5 * l2);

    for (mode, taps, count) in [("sequence", taps, 11), ("prefill", "blk.0.*,blk.*.resid_post", 10)] {
        let compared = run_tapped(&[taps, "--mode", mode, "--with", file.path()]);
        let pairs = compared["cka"].as_array().unwrap();
        assert_eq!(pairs.len(), count, "{mode}");
        for pair in pairs {
            assert_eq!(pair["a"], pair["b"]);
            assert!((pair["cka"].as_f64().unwrap() - 1.0).abs() < 1e-6, "{mode}: {pair}");
        }
    }
    let last = run_tapped(&["logits"]);
    assert_eq!(shape(&last, 0), json!([1, 2048]));
    let out =
        run(&["trace", &tales, "--prompt-ids", "0 5", "--taps", "logits", "--mode", "decode", "--with", file.path()]);
    assert_eq!(out.status.code(), Some(2), "other rows: {}", text(&out.stderr));
    assert!(text(&out.stderr).contains("is of other tokens") && text(&out.stderr).contains("2 and 6"));
    // as a table
    let out = run(&["trace", &tales, "-p", "Once upon", "--cka", "blk.0.resid_post", "blk.5.resid_post"]);
    let table = text(&out.stdout);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 1 + 6 + 1, "{table}");
    assert!(lines[0].contains("mean abs") && lines[6].starts_with("blk.5.resid_post"), "{table}");
    assert!(lines[7].starts_with("CKA of blk.0.resid_post and blk.5.resid_post: 0."), "{table}");
}

#[test]
fn tokenize_and_back() {
    let tales = tales();
    let got = json_of(&["tokenize", &tales, "Once upon a time", "--json"]).unwrap();
    assert_eq!(got["ids"], json!([0, 1424, 325, 667, 259, 516]));
    assert_eq!(got["tokens"][0], "<|endoftext|>");
    let plain = json_of(&["tokenize", &tales, "<|endoftext|>", "--no-special", "--json"]).unwrap();
    assert!(!ids(&plain["ids"]).contains(&0));
    // standard input, byte for byte, and back again
    let bytes = "é日\0 x\n".as_bytes();
    let mut child = peregrine(&["tokenize", &tales, "-", "--no-special", "--json"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let got: Json = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    let list: Vec<String> = ids(&got["ids"]).iter().map(u32::to_string).collect();
    assert_eq!(run(&["detokenize", &tales, &list.join(" ")]).stdout, bytes);
}

#[test]
fn render_prints_the_prompt_exactly() {
    let file = TempFile::new("messages.json", json!({"messages": [{"role": "user", "content": "Hi <b>"}]}).to_string());
    let path = file.path();
    let out = run(&["render", "--template", "chatml", "--messages", path]);
    assert_eq!(
        text(&out.stdout),
        "<|im_start|>user\nHi <b><|im_end|>\n<|im_start|>assistant\n",
        "{}",
        text(&out.stderr)
    );
    let out = run(&["render", "--template", "chatml", "--messages", path, "--no-generation-prompt"]);
    assert_eq!(text(&out.stdout), "<|im_start|>user\nHi <b><|im_end|>\n");
    let template = TempFile::new("date.jinja", "{{ bos_token }}{{ strftime_now('%d %B %Y') }}{{ eos_token }}");
    let out = run(&[
        "render",
        "--template",
        template.path(),
        "--messages",
        path,
        "--now",
        "2026-12-01 09:30",
        "--bos",
        "<s>",
        "--eos",
        "</s>",
    ]);
    assert_eq!(text(&out.stdout), "<s>01 December 2026</s>", "{}", text(&out.stderr));
    let tales = tales();
    let of_model = ["render", &tales, "--template", template.path(), "--messages", path, "--now", "2026-12-01 09:30"];
    let end = "<|endoftext|>";
    assert_eq!(text(&run(&of_model).stdout), format!("{end}01 December 2026{end}"), "the model's own tokens");
    let out = run(&[&of_model[..], &["--bos", "<s>"]].concat());
    assert_eq!(text(&out.stdout), format!("<s>01 December 2026{end}"), "{}", text(&out.stderr));
    // tools reach the template
    let source = "{% for t in tools %}{{ t.name }};{% endfor %}{{ messages | length }}";
    let template = TempFile::new("tools.jinja", source);
    let file =
        TempFile::new("tools.json", json!({"messages": [], "tools": [{"name": "a"}, {"name": "b"}]}).to_string());
    let out = run(&["render", "--template", template.path(), "--messages", file.path()]);
    assert_eq!(text(&out.stdout), "a;b;0", "{}", text(&out.stderr));
    for (content, code) in [("{", 2), ("{}", 2), (r#"{"messages": "hi"}"#, 2)] {
        let file = TempFile::new("bad.json", content);
        let out = run(&["render", "--template", "chatml", "--messages", file.path()]);
        assert_eq!(out.status.code(), Some(code), "{content}: {}", text(&out.stderr));
    }
}

#[test]
fn inspect_devices_bench_and_debug() {
    let tales = tales();
    let card = json_of(&["inspect", &tales, "--json"]).unwrap();
    assert_eq!(card["model"]["blocks"], 6);
    assert_eq!(card["model"]["feed_forward"], 512);
    assert_eq!(card["formats"]["Q8_0"]["tensors"], 43);
    assert_eq!(card["memory"]["context"], 512);
    let longer = json_of(&["inspect", &tales, "--ctx", "1024", "--json"]).unwrap();
    let kv = |card: &Json| card["memory"]["kv_f16_bytes"].as_u64().unwrap();
    assert_eq!((kv(&card), kv(&longer)), (2 * 6 * 64 * 512 * 2, 2 * 6 * 64 * 1024 * 2), "6 blocks, 2 kv heads of 32");
    let built_in = text(&run(&["inspect"]).stdout);
    assert!(built_in.contains("vocabulary      2048") && !built_in.contains('\u{1b}'), "{built_in}");
    // the activations are reckoned as the engine allots them: sets for passes of 512 tokens, one, and few, of which the
    // last two share logits with another
    let gpu = common::gpu::gpu();
    let gguf = peregrine::Gguf::open(&tales).unwrap();
    let model = peregrine::block_on(peregrine::Model::load(gpu, &gguf, |_, _| {})).unwrap();
    let sets = [512, 1].into_iter().chain(peregrine::kernels::FEW_TOKENS);
    let allotted = sets.map(|tokens| activation_bytes(gpu, &model, tokens)).sum::<u64>() - 2 * 2048 * 4;
    let reckoned = card["memory"]["activations_bytes"].as_u64().unwrap();
    assert!(reckoned.abs_diff(allotted) < 64, "{reckoned} reckoned, {allotted} allotted"); // small buffers are padded

    let devices = json_of(&["devices", "--json"]).unwrap();
    assert_eq!(devices.as_array().unwrap().iter().filter(|d| d["chosen"] == true).count(), 1);
    assert!(text(&run(&["devices"]).stdout).contains("in one binding"));

    let bench = json_of(&["bench", &tales, "-p", "8", "-n", "4", "--runs", "1", "--json"]).unwrap();
    for figure in [
        "open_ms",
        "load_ms",
        "upload_gbps",
        "pipelines",
        "first_token_ms",
        "start_ms",
        "prefill_tps",
        "decode_tps",
        "dispatches_per_token",
        "bytes_per_token",
        "read_bandwidth_gbps",
        "bandwidth_fraction",
    ] {
        assert!(bench[figure].as_f64().unwrap() > 0.0, "{figure}: {bench}");
    }

    // where the time goes: every step of both passes, and as a trace
    let trace = TempFile::new("trace.json", "");
    let args = ["bench", &tales, "-p", "8", "-n", "4", "--runs", "1", "--json", "--trace", trace.path()];
    let profile = &json_of(&args).unwrap()["profile"];
    assert!(profile["read_gbps"].as_f64().unwrap() > 0.0 && profile["dispatch_us"].as_f64().unwrap() > 0.0);
    let steps =
        |pass: &Json| pass["steps"].as_array().unwrap().iter().map(|s| s["steps"].as_u64().unwrap()).sum::<u64>();
    let passes = profile["passes"].as_array().unwrap();
    let counts: Vec<_> = passes.iter().map(|pass| (pass["pass"].as_str().unwrap(), steps(pass))).collect();
    assert!(counts.iter().any(|&(name, _)| name == "prefill") && counts.iter().any(|&(name, _)| name == "decode"));
    let events: Json = serde_json::from_str(&std::fs::read_to_string(trace.path()).unwrap()).unwrap();
    let events = events["traceEvents"].as_array().unwrap();
    let bars = events.iter().filter(|event| event["ph"] == "X").count() as u64;
    assert_eq!(bars, counts.iter().map(|&(_, steps)| steps).sum::<u64>(), "{counts:?}");
    let shown = text(&run(&["bench", &tales, "-p", "8", "-n", "4", "--runs", "1", "--profile"]).stdout);
    assert!(shown.contains("matvec") || shown.contains("matmul"), "{shown}");
    assert!(shown.contains("in 1 run)") && shown.contains("\ndecode: 1 token after 10, "), "{shown}");

    // a described device: the time follows from bytes and operations
    let explain =
        |gbps: &str| text(&run(&["explain", &tales, "--gbps", gbps, "--tflops", "1000", "--dispatch-us", "0"]).stdout);
    let speed = |shown: &str| -> f64 {
        let line = shown.lines().find(|line| line.contains("tokens/s")).expect("a total");
        line.rsplit_once(", ").unwrap().1.trim_end_matches(" tokens/s").parse().unwrap()
    };
    let (slow, fast) = (explain("1"), explain("100"));
    assert!(slow.contains("blk.0.attn_qkv") && slow.contains("Q8_0"), "{slow}");
    let ratio = speed(&fast) / speed(&slow);
    assert!((90.0..110.0).contains(&ratio), "a hundred times the bandwidth, {ratio} times the speed");
    // and it need not be there
    let alone = ["explain", &tales, "--gbps", "1", "--tflops", "1000", "--dispatch-us", "0", "--json"];
    let out = peregrine(&alone).env("VK_DRIVER_FILES", "/no/driver.json").output().expect("the binary runs");
    assert!(out.status.success(), "{}", text(&out.stderr));
    let json: Json = serde_json::from_slice(&out.stdout).unwrap();
    let decode = &json["passes"][0];
    let steps: f64 = decode["steps"].as_array().unwrap().iter().map(|step| step["seconds"].as_f64().unwrap()).sum();
    assert!((steps / decode["seconds"].as_f64().unwrap() - 1.0).abs() < 1e-9, "{decode}");
    assert!((speed(&slow) / decode["tokens_per_s"].as_f64().unwrap() - 1.0).abs() < 0.1, "{decode}");
    // the slowest and the fastest that can be described: every time is a number
    for (figure, dispatch) in [("0.001", "1e9"), ("1e9", "0")] {
        let figures = ["--gbps", figure, "--tflops", figure, "--dispatch-us", dispatch, "--json"];
        let json = json_of(&[&["explain", &tales], &figures[..]].concat()).unwrap();
        assert!(json["passes"].as_array().unwrap().len() == 2 && !json.to_string().contains("null"), "{json}");
    }

    let plan = text(&run(&["debug", "plan", &tales]).stdout);
    assert!(
        plan.contains("plan decode: ")
            && plan.contains(" steps, one token, ")
            && plan.contains("plan prefill")
            && plan.contains("blk.5.ffn_residual"),
        "{plan}"
    );
    let compare = run(&["debug", "compare", &tales, "--prompt", "Once"]);
    assert!(compare.status.success() && text(&compare.stdout).contains("agree"), "{}", text(&compare.stdout));
    let strict = run(&["debug", "compare", &tales, "--prompt", "Once", "--tolerance", "1e-12"]);
    assert_eq!(strict.status.code(), Some(1));
    assert!(text(&strict.stderr).contains("steps differ, the first is "), "{}", text(&strict.stderr));
}

/// Compiled pipelines and a tuning: written, taken, survived when they are damaged, left alone when that is asked for.
#[test]
fn what_is_kept_between_runs() {
    let (folder, tales) = (cache_folder("kept"), tales());
    let _ = std::fs::remove_dir_all(&folder);
    let go = |args: &[&str]| peregrine(args).env("PEREGRINE_CACHE_DIR", &folder).output().expect("the binary runs");
    let story = ["generate", &tales, "-p", "Once", "-n", "4", "--temp", "0", "-v"];
    let files = || -> Vec<PathBuf> {
        let mut found: Vec<_> =
            std::fs::read_dir(&folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
        found.sort();
        found
    };
    let file = |start: &str| -> PathBuf {
        let found = files();
        let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(start);
        found.iter().find(|path| name(path)).unwrap_or_else(|| panic!("no {start} among {found:?}")).clone()
    };

    let plain = go(&[&story[..], &["--no-cache"]].concat());
    assert!(plain.status.success(), "{}", text(&plain.stderr));
    assert!(files().is_empty(), "--no-cache wrote {:?}", files());
    let first = go(&story);
    assert_eq!((first.status.success(), text(&first.stdout)), (true, text(&plain.stdout)), "{}", text(&first.stderr));
    assert!(!text(&first.stderr).contains("tuned: "), "nothing is tuned yet: {}", text(&first.stderr));

    // tune measures the profiles of this device and keeps the fastest
    let tuned = go(&["tune", &tales, "--seconds", "5", "--json"]);
    assert!(tuned.status.success(), "{}", text(&tuned.stderr));
    let tuned: Json = serde_json::from_slice(&tuned.stdout).unwrap();
    let trials = tuned["trials"].as_array().unwrap();
    assert!(trials.iter().all(|trial| trial["decode_tps"].as_f64().unwrap() > 0.0), "{tuned}");
    assert_eq!(trials.iter().filter(|trial| trial["chosen"] == true).count(), 1, "{tuned}");
    let kept = file("tune-");
    assert_eq!(tuned["kept_in"], kept.to_str().unwrap());
    for (args, takes) in [(&[][..], true), (&["--no-tune"], false), (&["--no-cache"], false), (&["--exact"], false)] {
        let out = go(&[&story[..], args].concat());
        assert!(out.status.success() && !out.stdout.is_empty(), "{args:?}: {}", text(&out.stderr));
        assert_eq!(text(&out.stderr).contains("tuned: "), takes, "{args:?}: {}", text(&out.stderr));
    }
    // without time for another profile nothing is compared, and what was found before stays
    let before = std::fs::read(&kept).unwrap();
    let out = go(&["tune", &tales, "--seconds", "0"]);
    assert!(out.status.success() && text(&out.stdout).contains("kept nowhere"), "{}", text(&out.stdout));
    assert!(text(&out.stdout).contains("measured in 0 seconds"), "{}", text(&out.stdout));
    assert_eq!(std::fs::read(&kept).unwrap(), before);
    // where nothing can be kept, that is told with its cause; profiles are unlike in what they run
    let blocked = folder.join("file");
    std::fs::write(&blocked, "").unwrap();
    let args = ["tune", &tales, "--seconds", "5", "--json"];
    let out = peregrine(&args).env("PEREGRINE_CACHE_DIR", &blocked).output().expect("the binary runs");
    let told: Json = serde_json::from_slice(&out.stdout).unwrap();
    assert!(told["kept_in"].is_null() && told["not_kept"].as_str().unwrap().contains("cannot be written"), "{told}");
    std::fs::remove_file(&blocked).unwrap();

    // a damaged file is told and does no harm
    let pipelines = files().iter().any(|path| path.to_string_lossy().contains("pipelines-"));
    std::fs::write(&kept, b"{\"of\": 1").unwrap();
    if pipelines {
        std::fs::write(file("pipelines-"), b"peregrine?").unwrap();
    }
    let out = go(&story);
    assert!(out.status.success() && text(&out.stdout) == text(&plain.stdout), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("is damaged or of another driver"), "{}", text(&out.stderr));
    std::fs::remove_dir_all(&folder).unwrap();
}

fn activation_bytes(gpu: &peregrine::Gpu, model: &peregrine::Model, tokens: u32) -> u64 {
    let (config, weights) = (model.config(), model.weights());
    let logits = peregrine::tensor::Tensor::new(gpu, "logits", 1, config.vocab_size).unwrap();
    let all = peregrine::model::state::Activations::new(gpu, config, weights, None, tokens, 1, logits, false).unwrap();
    let block = &all.block[0]; // all blocks of this model share one
    let tensors = [
        &all.x,
        &all.normed.floats,
        &all.last,
        &all.logits,
        &block.qkv,
        &block.q,
        &block.attn.floats,
        &block.gate_up,
        &block.swiglu.floats,
    ];
    all.ids.size() + tensors.iter().map(|tensor| tensor.buffer.size()).sum::<u64>()
}

#[test]
fn no_adapter_is_an_error_that_says_what_to_install() {
    for args in [&["devices"][..], &["generate", "-n", "1"]] {
        let out = peregrine(args)
            .env("VK_DRIVER_FILES", "/nonexistent.json")
            .env("VK_ICD_FILENAMES", "/nonexistent.json")
            .output()
            .unwrap();
        assert_eq!(out.status.code(), Some(1));
        assert!(text(&out.stderr).contains("mesa-vulkan-drivers"), "{}", text(&out.stderr));
    }
}

/// Reads ten bytes of the output and closes it; both standard output and standard error, as with `2>&1 | head`.
fn closed_pipe(args: &[&str]) -> Result<(), String> {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut child = peregrine(args).stdout(writer.try_clone().unwrap()).stderr(writer).spawn().unwrap();
    let mut first = [0; 10];
    reader.read_exact(&mut first).unwrap();
    drop(reader);
    let status = child.wait().unwrap();
    if status.success() { Ok(()) } else { Err(format!("{status}")) }
}

#[test]
fn closed_pipes_end_quietly() {
    let tales = tales();
    let mut table = Table::new("closed pipes");
    for args in [
        &["generate", "-n", "200"][..],
        &["logits", &tales, "--prompt-ids", "0 5 6 7 8 9", "--all", "--top", "2000"],
        &["tokenize", &tales, &"many words ".repeat(2000)],
        &["detokenize", &tales, &"1424 325 ".repeat(9000)],
        &["debug", "plan", &tales],
    ] {
        table.row(&args[..2].join(" "), closed_pipe(args));
    }
    table.finish();
    // nobody reads standard error: the result still comes whole
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let out = peregrine(&["generate", "-n", "5", "--seed", "1"]).stderr(writer).output().unwrap();
    assert!(out.status.success() && text(&out.stdout).ends_with('\n'), "{:?}: {}", out.status, text(&out.stdout));
    // only standard output is gone: standard error stays clean
    let mut child =
        peregrine(&["generate", "-n", "200"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success() && !text(&out.stderr).contains("panic"), "{}", text(&out.stderr));
}

#[cfg(unix)]
#[test]
fn a_full_disk_is_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let out = peregrine(&["generate", "-n", "5"]).stdout(full).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("No space left"), "{}", text(&out.stderr));
}

/// A file that shrinks while it is mapped ends the program with SIGBUS: there must be a message, and no signal.
#[cfg(unix)]
#[test]
fn a_file_that_is_cut_while_it_is_read() {
    use common::tiny::TinyModel;
    use peregrine::formats::Format;
    use peregrine::model::Architecture;
    // large enough that it is still being read when we cut it
    let mut model = TinyModel::new(Architecture::Llama, Format::F32, 1);
    model.vocab = 400_000;
    let file = TempFile::new("cut.gguf", model.bytes());
    let mut child = peregrine(&["-v", "generate", file.path(), "--prompt-ids", "1", "-n", "3"]);
    let mut child = child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("running on") {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "it says when loading begins");
    }
    std::fs::File::options().write(true).open(&file.0).unwrap().set_len(4096).unwrap();
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    let status = child.wait().unwrap();
    let told = status.code() == Some(1) && rest.contains("error: the model file was cut");
    assert!(told || status.success(), "{status}: {rest}");
    eprintln!("cut while it was read: {}", if told { "told" } else { "it was read already" });
}

/// As somebody else, where the tests run as root, who may read everything.
#[cfg(unix)]
#[test]
fn a_file_without_permission() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    let file = TempFile::new("secret.gguf", "GGUF");
    std::fs::set_permissions(&file.0, std::fs::Permissions::from_mode(0o000)).unwrap();
    let mut command = peregrine(&["inspect", file.path()]);
    if std::fs::metadata("/proc/self").map_or(0, |me| me.uid()) == 0 {
        command.uid(65_534);
    }
    match command.output() {
        Err(error) => common::loudly(&format!("SKIPPED: no permission: nobody may not run the binary here ({error})")),
        Ok(out) => {
            assert_eq!(out.status.code(), Some(1));
            let stderr = text(&out.stderr);
            assert!(stderr.contains(file.path()) && stderr.contains("Permission denied"), "{stderr}");
        }
    }
}

#[test]
fn a_conversation() {
    let tales = tales();
    let chat = ["chat", &tales, "--chat-template", "chatml", "-n", "5", "--seed", "1"];
    let ended = run(&chat);
    assert!(ended.status.success() && ended.stdout.is_empty(), "the end of input ends it: {}", text(&ended.stderr));

    let state = std::env::temp_dir().join(format!("peregrine state {}", std::process::id()));
    let mut child = peregrine(&chat);
    child.env("XDG_STATE_HOME", &state).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let lines =
        "/regen\nhello\n/stats\nand now\n/stats\n/regen\n/stats\n/dance\n/reset\n/regen\n/help\n/quit\nno more\n";
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    let stderr = text(&out.stderr);
    assert!(out.status.success(), "{stderr}");
    for words in ["tokens/s", "context: ", "unknown command /dance", "Ctrl-C stops an answer"] {
        assert!(stderr.contains(words), "{words:?} is not in {stderr}");
    }
    assert_eq!(stderr.matches("there is no answer yet").count(), 2, "{stderr}");
    let answers = text(&out.stdout);
    assert!(answers.lines().count() >= 3, "two answers and another: {answers}");

    // what the conversation has in common with the one before is not computed again
    let new: Vec<(u32, u32)> = stderr
        .lines()
        .filter_map(|line| {
            let (new, all) = line.split_once("; ")?.1.strip_suffix(" prompt tokens were new")?.split_once(" of ")?;
            Some((new.parse().ok()?, all.parse().ok()?))
        })
        .collect();
    assert_eq!(new.len(), 3, "{stderr}");
    assert_eq!(new[0].0, new[0].1, "the first prompt is new");
    assert!(new[1].0 < new[1].1, "the second goes on: {new:?}");
    assert_eq!(new[2], (1, new[1].1), "/regen computes one token anew, whose logits are wanted");

    // each answer has a seed of its own, counted from --seed
    for seed in ["seed 1;", "seed 2;", "seed 3;"] {
        assert!(stderr.contains(seed), "{seed} is not in {stderr}");
    }
    let history = std::fs::read_to_string(state.join("peregrine/history")).unwrap();
    assert!(history.contains("hello") && !history.contains("no more"), "{history}");
    std::fs::remove_dir_all(state).unwrap();
}

#[test]
fn one_question_and_out() {
    let tales = tales();
    let chat = ["chat", &tales, "--chat-template", "chatml", "--temp", "0", "-p", "Who was the king?"];
    let out = run(&[&chat[..], &["-n", "6"]].concat());
    assert!(out.status.success() && text(&out.stdout).trim().len() > 3, "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("as long as --tokens allows"), "{}", text(&out.stderr));
    assert_eq!(text(&run(&[&chat[..], &["-n", "0"]].concat()).stdout), "\n", "no tokens wanted");
    // the rule for a full context
    let long = run(&[&chat[..], &["--ctx", "16"]].concat());
    assert_eq!(long.status.code(), Some(1));
    assert!(text(&long.stderr).contains("too long") && text(&long.stderr).contains("--ctx"), "{}", text(&long.stderr));
    let broken = run_with(&chat[..4], b"\xff\n");
    assert!(text(&broken.stderr).starts_with("error: cannot read standard input\n"), "{}", text(&broken.stderr));
    let question = "tell me more about it, please, and about the queen\n";
    let mut talk = vec!["chat", &tales, "--chat-template", "chatml", "--ctx", "128", "-n", "20", "--temp", "0"];
    let out = run_with(&talk, question.repeat(4).as_bytes());
    let stderr = text(&out.stderr);
    assert!(out.status.success() && stderr.contains("the oldest question and its answer are forgotten"), "{stderr}");
    // an answer that reaches the end of the context
    talk[7] = "400";
    let out = run_with(&talk, question.as_bytes());
    assert!(text(&out.stderr).contains("[the context is full]"), "{}", text(&out.stderr));
}

/// Ctrl-C ends the answer; the conversation goes on.
#[cfg(unix)]
#[test]
fn an_interrupted_answer() {
    let tales = tales();
    let chat = ["chat", &tales, "--chat-template", "chatml", "--ctx", "4096", "-n", "4000", "--temp", "0"];
    let mut child = peregrine(&chat);
    child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"tell me a tale\n").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 20]).unwrap();
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    input.write_all(b"/stats\n/quit\n").unwrap();
    let out = child.wait_with_output().unwrap();
    let stderr = text(&out.stderr);
    assert!(out.status.success() && stderr.contains("[stopped]") && stderr.contains("context: "), "{stderr}");
}

/// Models of random weights run, and differ by their seed; a header alone is enough to explain one of any size.
#[test]
fn synthetic_models() {
    let file = TempFile::new("synth.gguf", "");
    let synth = |shape: &str, format: &str, more: &[&str]| {
        let args = ["debug", "synth", "--shape", shape, "--format", format, "--out", file.path()];
        let out = run(&[&args, more].concat());
        assert!(out.status.success(), "{}", text(&out.stderr));
        let names = std::fs::read_dir(std::env::temp_dir()).unwrap().map(|entry| entry.unwrap().file_name());
        let ours = format!("peregrine {} synth.gguf", std::process::id());
        let left = names.filter(|name| name.to_string_lossy().starts_with(&ours)).count();
        assert_eq!(left, 1, "the temporary file is gone");
    };
    let mut files = Vec::new();
    for (format, seed, formats) in
        [("q4_k", "1", vec!["Q4_K", "Q6_K", "F32"]), ("Q4_K", "2", vec![]), ("BF16", "1", vec!["BF16", "F32"])]
    {
        synth("tiny", format, &["--seed", seed]);
        let card = json_of(&["inspect", file.path(), "--json"]).unwrap();
        assert_eq!((&card["warnings"], &card["model"]["vocabulary"]), (&json!([]), &json!(1024)), "{card}");
        for name in formats {
            assert!(card["formats"].to_string().contains(name), "{name} is not in {}", card["formats"]);
        }
        let measured = json_of(&["bench", file.path(), "-p", "20", "-n", "2", "-r", "1", "--json"]).unwrap();
        assert!(measured["decode_tps"].as_f64().unwrap() > 0.0, "{measured}");
        let words = run(&["generate", file.path(), "-p", "a b", "-n", "4", "--temp", "0"]);
        assert!(words.status.success(), "{}", text(&words.stderr));
        files.push(std::fs::read(file.path()).unwrap());
    }
    synth("tiny", "Q4_K", &[]);
    assert!(std::fs::read(file.path()).unwrap() == files[0], "the same seed, the same file");
    assert!(files[0] != files[1] && files[0].len() == files[1].len(), "another seed, other weights");

    synth("1b", "Q4_K", &["--header-only"]);
    assert_eq!(std::fs::metadata(file.path()).unwrap().len() / 1_000_000, 803);
    let explained = run(&["explain", file.path(), "--gbps", "1000", "--tflops", "80", "--position", "8192"]);
    let (shown, told) = (text(&explained.stdout), text(&explained.stderr));
    assert!(explained.status.success() && shown.contains("tokens/s"), "{shown}{told}");
    assert_eq!(shown.matches("ffn_residual").count(), 4, "of either format once in either plan: {shown}");
}
