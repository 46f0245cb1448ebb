//! The binary as people and programs use it: exit codes, outputs, error texts, the use cases. Needs a GPU adapter.

mod common;

use common::{Table, data, ids, json};
use serde_json::{Value as Json, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn peregrine(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine"));
    command.args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    peregrine(args).output().expect("the binary runs")
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
        (vec!["generate", &tales, "-p", "a", "--gpu", "no such card"], 1, vec!["no such card", "There are"]),
        (
            vec!["generate", &tales, "--ctx", "4", "-p", "a long enough prompt to fill four places"],
            1,
            vec!["context of 4"],
        ),
        (vec!["detokenize", &tales, "9999"], 2, vec!["9999", "2048"]),
        (vec!["chat", &tales, "-p", "hi"], 1, vec!["template", "--chat-template"]),
        (vec!["render", "--template", "/no.jinja", "--messages", "/no.json"], 1, vec!["/no.jinja"]),
        (vec!["bench", &tales, "-p", "0"], 2, vec!["at least 1"]),
    ];
    check(&mut table, cases);
    table.finish();
}

#[test]
fn a_story_without_any_argument() {
    let out = run(&["generate", "-n", "12", "--seed", "7"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let story = text(&out.stdout);
    assert!(story.starts_with("Once upon a time") && story.ends_with('\n') && story.len() > 30, "{story:?}");
    assert!(text(&out.stderr).contains("seed 7"), "{}", text(&out.stderr));
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

    let file = std::env::temp_dir().join(format!("peregrine prompt {}.txt", std::process::id()));
    std::fs::write(&file, "The king\n").unwrap();
    let got = generate(&["-f", file.to_str().unwrap(), "-n", "20"]);
    std::fs::remove_file(&file).unwrap();
    table.row("prompt from a file", expect(got, &|got| got["ids"] == greedy["ids"]));
    let got = generate(&["-p", "The king", "-n", "20", "--repeat-penalty", "1.5"]);
    table.row("repeat penalty", expect(got, &|got| got["ids"] != greedy["ids"]));
    for kv in [&["--kv", "f32"][..], &["--exact"]] {
        let got = generate(&[&["-p", "The king", "-n", "6"], kv].concat());
        table.row(&kv.join(" "), expect(got, &|got| ids(&got["ids"]) == ids(&greedy["ids"])[..6]));
    }
    table.finish();
}

#[test]
fn use_cases() {
    let Some(cases) = json("use_cases.json") else { return };
    let Some(base) = variant("base.gguf") else { return };
    let mut table = Table::new("use cases");
    for case in cases.as_array().unwrap() {
        let (Some(want), Some(prompt)) = (case.get("greedy"), case.get("prompt_ids")) else { continue };
        let prompt: Vec<String> = ids(prompt).iter().map(u32::to_string).collect();
        let n = want.as_array().unwrap().len().to_string();
        let got = json_of(&[
            "generate",
            &base,
            "--prompt-ids",
            &prompt.join(" "),
            "-n",
            &n,
            "--temp",
            "0",
            "--exact",
            "--ignore-eos",
            "--json",
        ]);
        let outcome = got.and_then(|got| if got["ids"] == *want { Ok(()) } else { Err(got["ids"].to_string()) });
        table.row(case["what"].as_str().unwrap(), outcome);
    }
    let mut row = |what: &str, file: &str, args: &[&str], check: &dyn Fn(&Json) -> bool| {
        let Some(path) = variant(file) else { return };
        let args = [&args[..1], &[&path[..]], &args[1..]].concat();
        let outcome = json_of(&args).and_then(|got| if check(&got) { Ok(()) } else { Err(got.to_string()) });
        table.row(what, outcome);
    };
    row("empty prompt, model adds BOS", "spm_base.gguf", &["generate", "-p", "", "-n", "2", "--json"], &|got| {
        got["prompt_ids"] == json!([1])
    });
    row(
        "a control token as stop string",
        "tok_eos_wrong_llama3.gguf",
        &["generate", "-p", "a", "-n", "3", "--stop", "<|eot_id|>", "--json"],
        &|got| got["ids"].is_array(),
    );
    row(
        "ids without a vocabulary",
        "tok_none.gguf",
        &["generate", "--prompt-ids", "57 68", "-n", "3", "--json"],
        &|got| got["ids"].as_array().unwrap().len() == 3,
    );
    row(
        "a folder with spaces and emoji",
        "names/modèle 模型 (copy) 🦙.gguf",
        &["generate", "-p", "a", "-n", "1", "--json"],
        &|got| got["ids"].is_array(),
    );
    row("NUL inside a prompt", "base.gguf", &["generate", "-e", "-p", r"a\x00b", "-n", "1", "--json"], &|got| {
        got["prompt_ids"] == json!([64, 188, 65])
    });

    let mut cases: Vec<Case> = Vec::new();
    let paths = [
        "base.gguf",
        "tok_none.gguf",
        "tensor_nan_weight.gguf",
        "chat_template_missing.gguf",
        "chat_template_broken.gguf",
        "chat_templates_named.gguf",
        "kind_mmproj.gguf",
    ]
    .map(variant);
    let [Some(base), Some(no_vocab), Some(nan), Some(no_template), Some(broken), Some(named), Some(projector)] = &paths
    else {
        return;
    };
    cases.push((vec!["generate", base, "-p", ""], 2, vec!["prompt", "token"]));
    cases.push((vec!["generate", no_vocab, "-p", "text"], 1, vec!["no vocabulary", "ids"]));
    cases.push((vec!["generate", nan, "-p", "a", "--temp", "0"], 1, vec!["not finite"]));
    cases.push((vec!["generate", nan, "-p", "a", "--temp", "1"], 1, vec!["not finite"]));
    cases.push((vec!["logits", nan, "-p", "a"], 1, vec!["not finite"]));
    cases.push((vec!["chat", no_template, "-p", "hi"], 1, vec!["template"]));
    cases.push((vec!["chat", broken, "-p", "hi"], 1, vec!["template"]));
    cases.push((vec!["generate", broken, "-p", "a", "-n", "1"], 0, vec![]));
    cases.push((vec!["chat", named, "-p", "hi", "--template-name", "poem"], 1, vec!["poem", "tool_use"]));
    cases.push((vec!["generate", projector, "-p", "a"], 1, vec!["projector"]));
    check(&mut table, cases);
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
    let folder = std::env::temp_dir();
    let file = folder.join(format!("peregrine messages {}.json", std::process::id()));
    std::fs::write(&file, json!({"messages": [{"role": "user", "content": "Hi <b>"}]}).to_string()).unwrap();
    let path = file.to_str().unwrap();
    let out = run(&["render", "--template", "chatml", "--messages", path]);
    assert_eq!(
        text(&out.stdout),
        "<|im_start|>user\nHi <b><|im_end|>\n<|im_start|>assistant\n",
        "{}",
        text(&out.stderr)
    );
    let out = run(&["render", "--template", "chatml", "--messages", path, "--no-generation-prompt"]);
    assert_eq!(text(&out.stdout), "<|im_start|>user\nHi <b><|im_end|>\n");
    let template = folder.join(format!("peregrine date {}.jinja", std::process::id()));
    std::fs::write(&template, "{{ bos_token }}{{ strftime_now('%d %B %Y') }}{{ eos_token }}").unwrap();
    let out = run(&[
        "render",
        "--template",
        template.to_str().unwrap(),
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
    std::fs::remove_file(file).unwrap();
    std::fs::remove_file(template).unwrap();
}

#[test]
fn inspect_devices_bench_and_debug() {
    let tales = tales();
    let card = json_of(&["inspect", &tales, "--json"]).unwrap();
    assert_eq!(card["model"]["blocks"], 6);
    assert_eq!(card["model"]["feed_forward"], 512);
    assert_eq!(card["formats"]["Q8_0"]["tensors"], 43);
    assert_eq!(card["memory"]["context"], 512);
    assert!(text(&run(&["inspect"]).stdout).contains("vocabulary        2048"));

    let devices = json_of(&["devices", "--json"]).unwrap();
    assert_eq!(devices.as_array().unwrap().iter().filter(|d| d["chosen"] == true).count(), 1);
    assert!(text(&run(&["devices"]).stdout).contains("bindings up to"));

    let bench = json_of(&["bench", &tales, "-p", "8", "-n", "4", "--runs", "1", "--json"]).unwrap();
    for figure in [
        "prefill_tps",
        "decode_tps",
        "dispatches_per_token",
        "bytes_per_token",
        "read_bandwidth_gbps",
        "bandwidth_fraction",
    ] {
        assert!(bench[figure].as_f64().unwrap() > 0.0, "{figure}: {bench}");
    }

    let plan = text(&run(&["debug", "plan", &tales]).stdout);
    assert!(plan.contains("plan decode") && plan.contains("plan prefill") && plan.contains("blk.5.ffn_down"), "{plan}");
    let compare = run(&["debug", "compare", &tales, "--prompt", "Once"]);
    assert!(compare.status.success() && text(&compare.stdout).contains("agree"), "{}", text(&compare.stdout));
    let strict = run(&["debug", "compare", &tales, "--prompt", "Once", "--tolerance", "1e-12"]);
    assert_eq!(strict.status.code(), Some(1));
    assert!(text(&strict.stderr).contains("first step that differs"), "{}", text(&strict.stderr));
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

#[test]
fn a_closed_pipe_ends_quietly() {
    let mut child =
        peregrine(&["generate", "-n", "200"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap(); // and the pipe is closed
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success() && !text(&out.stderr).contains("panic"), "{}", text(&out.stderr));
}

#[test]
fn a_conversation() {
    let tales = tales();
    let chat = ["chat", &tales, "--chat-template", "chatml", "-n", "5", "--seed", "1"];
    let ended = run(&chat);
    assert!(ended.status.success(), "the end of input ends it: {}", text(&ended.stderr));

    let state = std::env::temp_dir().join(format!("peregrine state {}", std::process::id()));
    let mut child = peregrine(&chat);
    child.env("XDG_STATE_HOME", &state).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let lines = "hello\n/regen\n/stats\n/dance\n/reset\n/regen\n/help\n/quit\nnever read\n";
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    let stderr = text(&out.stderr);
    assert!(out.status.success(), "{stderr}");
    for words in ["tokens/s", "context: ", "unknown command /dance", "there is no answer yet", "Ctrl-C stops an answer"]
    {
        assert!(stderr.contains(words), "{words:?} is not in {stderr}");
    }
    assert!(text(&out.stdout).lines().count() >= 2, "an answer and another: {}", text(&out.stdout));
    assert!(std::fs::read_to_string(state.join("peregrine/history")).unwrap().contains("hello"));
    std::fs::remove_dir_all(state).unwrap();
}

/// A hub of one repository, which cuts the first download in the middle.
struct Hub {
    address: String,
    log: std::sync::Arc<std::sync::Mutex<Vec<String>>>,
}

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn hub(content: Vec<u8>, etag: String) -> Hub {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let log = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let shared = log.clone();
    std::thread::spawn(move || {
        let mut cut = false;
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut request = String::new();
            let mut length = 0;
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                    break;
                }
                if let Some(n) = line.to_lowercase().strip_prefix("content-length:") {
                    length = n.trim().parse().unwrap_or(0);
                }
                request += &line.to_lowercase();
            }
            std::io::copy(&mut reader.take(length), &mut std::io::sink()).unwrap();
            let first = request.lines().next().unwrap_or_default().to_string();
            let range = request.lines().find_map(|line| line.strip_prefix("range: bytes=")).map(str::to_string);
            shared.lock().unwrap().push(format!("{first} {}", range.clone().unwrap_or_default()));
            let entry = json!({"type": "file", "oid": COMMIT, "size": content.len(), "path": "tiny.gguf"});
            let other = json!({"type": "file", "oid": COMMIT, "size": 3, "path": "README.md"});
            let headers = format!(
                "etag: \"{etag}\"\r\nx-repo-commit: {COMMIT}\r\nx-linked-size: {}\r\nconnection: close\r\n",
                content.len()
            );
            let reply = |stream: &mut std::net::TcpStream, status: &str, extra: &str, length: usize, body: &[u8]| {
                let head = format!("HTTP/1.1 {status}\r\n{headers}{extra}content-length: {length}\r\n\r\n");
                let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
            };
            if first.contains("/tree/") || first.contains("/paths-info/") {
                let list = if first.contains("/tree/") { json!([other, entry]) } else { json!([entry]) };
                let body = list.to_string();
                reply(&mut stream, "200 OK", "content-type: application/json\r\n", body.len(), body.as_bytes());
            } else if first.starts_with("head ") {
                reply(&mut stream, "200 OK", "", content.len(), b"");
            } else if first.contains("/resolve/") {
                let start = range.and_then(|range| range.split('-').next()?.parse().ok()).unwrap_or(0usize);
                let body = &content[start..];
                let extra = format!("content-range: bytes {start}-{}/{}\r\n", content.len() - 1, content.len());
                let sent = if cut { body.len() } else { body.len() / 3 };
                cut = true;
                reply(&mut stream, "206 Partial Content", &extra, body.len(), &body[..sent]);
            } else {
                reply(&mut stream, "404 Not Found", "", 0, b"");
            }
        }
    });
    Hub { address, log }
}

#[cfg(feature = "fetch")]
#[test]
fn fetch_goes_on_after_a_cut() {
    let content = std::fs::read(tales()).unwrap();
    let etag = json("tales_reference.json").unwrap()["sha256"]["tales-2m.Q8_0.gguf"].as_str().unwrap().to_string();
    let hub = hub(content.clone(), etag);
    let cache: PathBuf = std::env::temp_dir().join(format!("peregrine hub {}", std::process::id()));
    let fetch = |args: &[&str]| {
        let mut command = peregrine(args);
        command
            .env("HF_ENDPOINT", &hub.address)
            .env("HF_HOME", &cache)
            .env_remove("HF_HUB_CACHE")
            .env_remove("HF_TOKEN");
        command.output().unwrap()
    };
    let out = fetch(&["fetch", "someone/tiny-GGUF"]);
    let log = hub.log.lock().unwrap().join("\n");
    assert!(out.status.success(), "{}\n{log}", text(&out.stderr));
    let path = PathBuf::from(text(&out.stdout).trim());
    assert_eq!(std::fs::read(&path).unwrap(), content);
    let third = format!(" {}-", content.len() / 3);
    assert!(
        log.lines().any(|line| line.contains("/resolve/") && line.contains(&third)),
        "it went on from the cut:\n{log}"
    );
    // again: from the cache, without the content
    let downloads =
        |hub: &Hub| hub.log.lock().unwrap().iter().filter(|l| l.starts_with("get ") && l.contains("/resolve/")).count();
    let before = downloads(&hub);
    let again = fetch(&["fetch", "someone/tiny-GGUF", "tiny.gguf"]);
    assert_eq!((text(&again.stdout), downloads(&hub)), (text(&out.stdout), before), "{}", text(&again.stderr));
    assert_eq!(fetch(&["fetch", "nobody"]).status.code(), Some(2));
    std::fs::remove_dir_all(cache).unwrap();
}
