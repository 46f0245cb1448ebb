//! A conversation as a chat program keeps it: the system message and the turns, and which go when the context is full.

use crate::error::Result;
use serde_json::{Value as Json, json};

/// Messages in order: an optional system message, then questions and answers by turns.
///
/// The rule for a full context: the oldest question goes, together with its answer, until the prompt fits. The system
/// message and the last question always stay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conversation {
    system: Option<String>,
    turns: Vec<Turn>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Turn {
    question: String,
    answer: Option<String>,
}

impl Conversation {
    pub fn new(system: Option<&str>) -> Conversation {
        Conversation { system: system.map(String::from), turns: Vec::new() }
    }

    /// Adds a question. One that still has no answer is replaced: templates want the roles to alternate.
    pub fn ask(&mut self, question: &str) {
        self.turns.pop_if(|turn| turn.answer.is_none());
        self.turns.push(Turn { question: question.into(), answer: None });
    }

    /// Adds the answer to the last question, in place of an earlier one; without a question it is nothing's answer.
    pub fn answer(&mut self, answer: &str) {
        if let Some(turn) = self.turns.last_mut() {
            turn.answer = Some(answer.into());
        }
    }

    /// Takes the last answer back, so that its question can be answered anew; false if there is none.
    pub fn take_back_answer(&mut self) -> bool {
        self.turns.last_mut().is_some_and(|turn| turn.answer.take().is_some())
    }

    /// Takes the last question back, with its answer.
    pub fn take_back_question(&mut self) {
        self.turns.pop();
    }

    /// Forgets all turns; the system message stays.
    pub fn reset(&mut self) {
        self.turns.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// The messages as templates take them.
    pub fn messages(&self) -> Json {
        let mut messages = Vec::new();
        messages.extend(self.system.iter().map(|text| json!({ "role": "system", "content": text })));
        for turn in &self.turns {
            messages.push(json!({ "role": "user", "content": turn.question }));
            messages.extend(turn.answer.iter().map(|text| json!({ "role": "assistant", "content": text })));
        }
        Json::Array(messages)
    }

    /// Applies the rule for a full context: `fits` renders and tokenizes the messages and says whether they fit.
    /// Returns how many turns went, or None if not even the last question fits; then all turns are kept.
    pub fn drop_until(&mut self, mut fits: impl FnMut(&Json) -> Result<bool>) -> Result<Option<usize>> {
        let mut rest = self.clone();
        loop {
            if fits(&rest.messages())? {
                let dropped = self.turns.len() - rest.turns.len();
                *self = rest;
                return Ok(Some(dropped));
            }
            if rest.turns.len() <= 1 {
                return Ok(None);
            }
            rest.turns.remove(0);
        }
    }
}
