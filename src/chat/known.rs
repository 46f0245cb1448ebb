//! Well-known chat formats, by name, for files that bring no template.

/// The names; `ChatTemplate::well_known` takes them.
pub const WELL_KNOWN: &[&str] = &["chatml", "llama2", "llama3", "mistral", "gemma", "phi3", "zephyr"];

pub fn source(name: &str) -> Option<&'static str> {
    Some(match name {
        "chatml" => include_str!("templates/chatml.jinja"),
        "llama2" => include_str!("templates/llama2.jinja"),
        "llama3" => include_str!("templates/llama3.jinja"),
        "mistral" => include_str!("templates/mistral.jinja"),
        "gemma" => include_str!("templates/gemma.jinja"),
        "phi3" => include_str!("templates/phi3.jinja"),
        "zephyr" => include_str!("templates/zephyr.jinja"),
        _ => return None,
    })
}
