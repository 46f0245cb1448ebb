//! Chat templates: messages to prompt text.
