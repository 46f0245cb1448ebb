//! An answer as it comes: tokens pulled from a session, made into text, cut at stop strings, shown and timed.

use crate::clock;
use crate::error::Error;
use crate::generate::{GenerateOptions, Stop};
use crate::sampling::{Sampling, StopStrings};
use crate::session::Session;
use crate::tokenizer::Tokenizer;

/// What is asked of the model.
pub struct Ask<'a> {
    pub prompt: &'a [u32],
    /// Without one, ids are shown instead of text.
    pub tokenizer: Option<&'a Tokenizer>,
    pub sampling: Sampling,
    /// None: until the context is full.
    pub max_tokens: Option<u32>,
    pub stop: &'a [String],
    /// Bar every end token that is no stop string.
    pub ignore_eos: bool,
    /// Asked before each token, and between the passes over a long prompt with the number of its tokens that are done: true
    /// ends the answer.
    pub interrupted: &'a dyn Fn(usize) -> bool,
    /// Told each id as it comes: what an error leaves of an answer.
    pub given: &'a dyn Fn(u32),
}

/// Why an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Eos,
    StopString,
    Length,
    Context,
    Interrupted,
}

pub struct Answer {
    pub ids: Vec<u32>,
    pub text: String,
    pub end: End,
    pub seed: u64,
    /// Tokens of the prompt that the session did not hold yet.
    pub new_tokens: usize,
    /// Seconds until the first token was chosen.
    pub first: Option<f64>,
    /// Tokens a second after the first.
    pub decode_tps: Option<f64>,
}

/// Runs the prompt, as far as the session does not hold it yet, and what the model says to it.
/// `show` gets an empty text when the prompt has been accepted, then every piece of the answer; its failure ends the answer.
///
/// # Errors
/// Those of [`Session::append`] and [`Session::generate`], and what `show` gives.
pub async fn answer<E: From<Error>>(
    session: &mut Session,
    ask: Ask<'_>,
    mut show: impl FnMut(&str) -> Result<(), E>,
) -> Result<Answer, E> {
    let Ask { prompt, tokenizer, mut sampling, max_tokens, stop, ignore_eos, interrupted, given } = ask;
    let mut stops = StopStrings::new(stop.to_vec())?;
    let end_ids = tokenizer.map_or(&[][..], Tokenizer::end_ids);
    // a control token has no text that a stop string could be found in
    let control = |text: &String| {
        tokenizer?.id_of(text.as_bytes()).filter(|&id| tokenizer.is_some_and(|t| t.piece(id, false).is_empty()))
    };
    let stop_ids: Vec<u32> = stop.iter().filter_map(control).collect();
    let ends = if ignore_eos { stop_ids.clone() } else { [end_ids, &stop_ids].concat() };
    if ignore_eos {
        sampling.barred = end_ids.iter().copied().filter(|id| !stop_ids.contains(id)).collect();
    }

    let start = clock::seconds();
    let new = session.reuse(prompt);
    let mut end = None;
    session.check(new)?;
    let chunk = session.chunk();
    for (i, tokens) in new.chunks(chunk).enumerate() {
        if interrupted(i * chunk) {
            end = Some(End::Interrupted);
            break;
        }
        session.append(tokens).await?;
        if cfg!(target_arch = "wasm32") && new.len() > chunk {
            session.model().gpu().work_done().await?; // else all of it is under way at once and cannot be ended
        }
    }
    let mut generation = session.generate(GenerateOptions { sampling, max_tokens, end_ids: ends })?;
    show("")?;
    let mut stream = tokenizer.map(Tokenizer::stream);
    let (mut ids, mut text, mut first, mut last) = (Vec::new(), String::new(), None, 0.0);
    while end.is_none() {
        if interrupted(new.len()) {
            end = Some(End::Interrupted);
            break;
        }
        let Some(id) = generation.next_token().await? else { break };
        last = clock::seconds() - start;
        first.get_or_insert(last);
        ids.push(id);
        given(id);
        let Some(stream) = &mut stream else {
            show(&format!("{id} "))?;
            continue;
        };
        let (piece, stopped) = stops.push(&stream.push(id));
        show(&piece)?;
        text += &piece;
        end = stopped.then_some(End::StopString);
    }
    if end != Some(End::StopString) {
        let (piece, stopped) = stops.push(&stream.map_or_else(String::new, |mut stream| stream.finish()));
        let rest = if stopped { piece } else { piece + &stops.finish() };
        show(&rest)?;
        text += &rest;
    }
    let end = end.unwrap_or(match generation.stop() {
        Some(Stop::End(id)) if end_ids.contains(&id) && !stop_ids.contains(&id) => End::Eos,
        Some(Stop::End(_)) => End::StopString,
        Some(Stop::Context) => End::Context,
        Some(Stop::Length) | None => End::Length,
    });
    let decoded = ids.len().saturating_sub(1) as f64;
    let decode_tps = first.map(|first| decoded / (last - first)).filter(|tps| tps.is_finite());
    Ok(Answer { ids, text, end, seed: generation.seed(), new_tokens: new.len(), first, decode_tps })
}
