//! Text of tokens as they come.

use super::Tokenizer;

/// Turns tokens into text one at a time. A character whose bytes are spread over several tokens comes when its last byte
/// is there; bytes that can never become a character come as U+FFFD.
pub struct TextStream<'a> {
    tokenizer: &'a Tokenizer,
    /// The beginning of a character, up to three bytes.
    held: Vec<u8>,
}

impl<'a> TextStream<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> TextStream<'a> {
        TextStream { tokenizer, held: Vec::new() }
    }

    /// The text that this token completes; empty if it only begins a character, or is a control token.
    pub fn push(&mut self, id: u32) -> String {
        self.held.extend(self.tokenizer.piece(id, false));
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.held) {
                Ok(valid) => {
                    text.push_str(valid);
                    self.held.clear();
                    return text;
                }
                Err(error) => {
                    let (valid, rest) = self.held.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    let Some(wrong) = error.error_len() else {
                        self.held = rest.to_vec(); // a character may still come of it
                        return text;
                    };
                    text.push('\u{fffd}');
                    self.held = rest[wrong..].to_vec();
                }
            }
        }
    }

    /// What was held back at the end: U+FFFD for the beginning of a character that never came.
    pub fn finish(&mut self) -> String {
        let rest = String::from_utf8_lossy(&self.held).into_owned();
        self.held.clear();
        rest
    }
}
