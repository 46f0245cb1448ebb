//! Chat templates: renders of real templates byte for byte, what Python's Jinja environment offers them, the
//! well-known formats, control tokens typed by a user, dates, and conversations.

mod common;

use common::Table;
use peregrine::chat::{ChatInput, ChatTemplate, DateTime};
use serde_json::{Value as Json, json};

const NOON: DateTime = DateTime { year: 2026, month: 12, day: 1, hour: 9, minute: 30 };

fn equal<T: PartialEq + std::fmt::Debug>(got: T, want: T) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("\n  got  {got:?}\n  want {want:?}")) }
}

/// Every template of the reference data, three conversations, with and without generation prompt, as jinja2 renders them.
#[test]
fn renders_are_those_of_jinja2() {
    let Some(file) = common::json("templates/renders.json") else { return };
    let text = |value: &Json| value.as_str().expect("a text").to_string();
    let now = DateTime::parse(&text(&file["now"])).unwrap();
    let (bos, eos) = (text(&file["bos_token"]), text(&file["eos_token"]));
    let mut table = Table::new("renders of jinja2");
    for case in file["cases"].as_array().expect("cases") {
        let (name, conversation) = (text(&case["template"]), text(&case["case"]));
        let source = std::fs::read_to_string(common::data(&format!("templates/{name}")).unwrap()).unwrap();
        let add_generation_prompt = case["add_generation_prompt"] == true;
        let row = format!("{name}, {conversation}, add_generation_prompt {add_generation_prompt}");
        let input = ChatInput {
            messages: &file["conversations"][&conversation],
            tools: (conversation == "tools").then_some(&file["tools"]),
            add_generation_prompt,
            now,
        };
        let template = ChatTemplate::new(&name, &source, Some(&bos), Some(&eos));
        let got = template.and_then(|template| template.render(&input)).map_err(|e| e.to_string());
        table.row(
            &row,
            match case["error"].as_str() {
                None => got.and_then(|got| equal(got.as_str(), case["expected"].as_str().expect("a render"))),
                Some(error) => match got {
                    Ok(got) => Err(format!("rendered {got:?} where jinja2 fails with {error}")),
                    // The template's own words, and which template it was.
                    Err(got) if got.contains(error.trim_start_matches("TemplateError: ")) && got.contains(&name) => {
                        Ok(())
                    }
                    Err(got) => Err(format!("failed with {got:?}, jinja2 with {error:?}")),
                },
            },
        );
    }
    table.finish();
}
