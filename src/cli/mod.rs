//! The command line: one file a command. Results go to standard output, everything else to standard error.
//! Exit codes: 0 ok, 1 failure, 2 bad usage, 130 a training run that was stopped.

mod bench;
mod cache;
mod chat;
mod debug;
mod devices;
mod explain;
#[cfg(feature = "fetch")]
mod fetch;
mod generate;
mod inspect;
mod logits;
mod open;
mod output;
mod prompt;
mod render;
mod synth;
mod tokenize;
mod trace;
mod train;
mod tune;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;

/// Runs Llama- and Qwen-family language models on any GPU
#[derive(Parser)]
#[command(
    version,
    max_term_width = 100,
    after_help = "`peregrine generate` tells a tale with the built-in model: no download, no set-up.\n\n\
                  PEREGRINE_CACHE_DIR names the folder that is kept between runs (compiled pipelines, tunings); \
                  without it, it is `peregrine` in the user's cache folder."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Tell more on standard error (twice: what the GPU layer says)
    #[arg(short, long, global = true, action = clap::ArgAction::Count, display_order = 900)]
    verbose: u8,
}

#[derive(Subcommand)]
enum Command {
    /// Continue a text
    Generate(generate::Generate),
    /// Talk with a model
    Chat(chat::Chat),
    /// The most likely next tokens, at the last position or at all
    Logits(logits::Logits),
    /// Activations by name: statistics, a file of them, how alike two are
    Trace(trace::Trace),
    /// Token ids of a text
    Tokenize(tokenize::Tokenize),
    /// Text of token ids
    Detokenize(tokenize::Detokenize),
    /// The prompt text that a chat template makes of messages
    Render(render::Render),
    /// What a model file holds, and the memory it takes
    Inspect(inspect::Inspect),
    /// The GPU adapters of this machine
    Devices(devices::Devices),
    /// Measure a model's speed on this machine
    Bench(bench::Bench),
    /// Find the fastest way to run a model on this device, and keep it
    Tune(tune::Tune),
    /// What a model does step by step, and how fast that could be
    Explain(explain::Explain),
    /// Download a GGUF file from the Hugging Face hub
    #[cfg(feature = "fetch")]
    Fetch(fetch::Fetch),
    /// Teach a model: adapters on it, its own weights, or a new one from scratch
    #[command(subcommand)]
    Train(Box<train::Train>),
    /// Look inside the engine
    #[command(subcommand)]
    Debug(debug::Debug),
}

/// What a command fails with.
type Failure = Box<dyn std::error::Error>;

pub fn main() -> ExitCode {
    quiet_device_select();
    let parsed = Cli::from_arg_matches(&takes_negative_numbers(Cli::command()).get_matches());
    let cli = parsed.unwrap_or_else(|error| error.exit()); // with 2 on bad usage
    log_to_standard_error(cli.verbose);
    let outcome = match cli.command {
        Command::Generate(args) => args.run(),
        Command::Chat(args) => args.run(),
        Command::Logits(args) => args.run(),
        Command::Trace(args) => args.run(),
        Command::Tokenize(args) => args.run(),
        Command::Detokenize(args) => args.run(),
        Command::Render(args) => args.run(),
        Command::Inspect(args) => args.run(),
        Command::Devices(args) => args.run(),
        Command::Bench(args) => args.run(),
        Command::Tune(args) => args.run(),
        Command::Explain(args) => args.run(),
        #[cfg(feature = "fetch")]
        Command::Fetch(args) => args.run(),
        Command::Train(args) => args.run(),
        Command::Debug(args) => args.run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if is_closed_pipe(&*failure) => ExitCode::SUCCESS,
        Err(failure) => {
            output::report(&*failure);
            // an argument that only the model shows to be wrong is bad usage all the same
            let bad_usage = matches!(failure.downcast_ref(), Some(peregrine::Error::Argument { .. }));
            ExitCode::from(if bad_usage { 2 } else { 1 })
        }
    }
}

/// `--ctx -1` is a value that --ctx refuses, with what it takes; else it would be an option -1 that nobody knows.
fn takes_negative_numbers(command: clap::Command) -> clap::Command {
    let options = command.mut_args(|arg| {
        let has_value = arg.get_action().takes_values() && !arg.is_positional();
        if has_value { arg.allow_negative_numbers(true) } else { arg }
    });
    options.mut_subcommands(takes_negative_numbers)
}

/// The reader of our output is gone (`| head`): a quiet end, no failure.
fn is_closed_pipe(failure: &(dyn std::error::Error + 'static)) -> bool {
    let io = failure.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// RUST_LOG, where it is set, wins over -v.
fn log_to_standard_error(verbose: u8) {
    let filter = match verbose {
        0 => "peregrine=warn,error",
        1 => "peregrine=info,warn",
        _ => "debug",
    };
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(filter))
        .format(|out, record| {
            use std::io::Write;
            writeln!(out, "{}", output::logged(record.level(), record.args()))
        })
        .init();
}

/// Where there is no desktop, Mesa's layer for choosing a device looks for one all the same and prints an error about
/// XDG_RUNTIME_DIR, which looks like ours. It has nothing to choose for us: off with it.
fn quiet_device_select() {
    let desktop = ["XDG_RUNTIME_DIR", "DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    if cfg!(target_os = "linux") && !desktop {
        // SAFETY: this is the program's first statement; no other thread runs that could read the environment.
        unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
    }
}
