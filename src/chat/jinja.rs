//! The Jinja environment of chat templates: what Python's `transformers` gives them beyond the language itself.

use crate::chat::ChatInput;
use crate::chat::json::{self, Style};
use crate::error::Error;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, Serde, ValueOrKwargs, from_args};
use minijinja::{AutoEscape, Environment, ErrorKind, Value, context};
use minijinja_contrib::pycompat;
use serde_json::Value as Json;
use std::error::Error as _;

/// Steps of the template engine before a render is given up, and more for each byte of the messages: a template that
/// came with a file must not run for ever, nor fill the memory (a step also stands for 64 bytes of text made). The most
/// wasteful of 35 real templates takes a fifth of this for a thousand messages of a thousand characters.
const FUEL: u64 = 10_000_000;
const FUEL_PER_BYTE: u64 = 200;
/// The template's name inside its environment.
const TEMPLATE: &str = "chat";

/// An environment that holds this one template.
pub fn environment(source: &str) -> Result<Environment<'static>, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_debug(true); // errors know the failing expression
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(pycompat::unknown_method_callback);
    minijinja_contrib::add_to_environment(&mut environment);
    // In Python a string and a mapping are sequences too, and None is not iterable. A loop over none stays empty here,
    // where Python stops with an error: model files hold templates that are only right so.
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    environment.add_test("sequence", |value: &Value| !value.is_none() && value.len().is_some());
    environment.add_filter("tojson", tojson);
    environment.add_filter("from_json", from_json);
    environment.add_function("raise_exception", raise_exception);
    // Jinja reads every kind of line end as \n.
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    environment.add_template_owned(TEMPLATE, without_generation_tags(&source))?;
    Ok(environment)
}

/// `messages` and `tools` are those of the input, or stand for them.
pub fn render(
    environment: &Environment,
    input: &ChatInput,
    (messages, tools): (&Json, Option<&Json>),
    (bos, eos): (Option<&str>, Option<&str>),
) -> Result<String, minijinja::Error> {
    let now = input.now;
    let strftime_now = move |format: &str| {
        now.format(format).map_err(|code| {
            let detail = format!("strftime_now does not know {code:?} in {format:?}");
            minijinja::Error::new(ErrorKind::InvalidOperation, detail)
        })
    };
    // Templates tell apart what is `none` and what is undefined: so transformers does it.
    let token = |text: Option<&str>| text.map_or(Value::UNDEFINED, Value::from);
    let mut environment = environment.clone(); // shares the compiled template
    environment.set_fuel(Some(FUEL + FUEL_PER_BYTE * messages.to_string().len() as u64));
    environment.get_template(TEMPLATE)?.render(context! {
        messages => Serde(messages),
        tools => tools.map(Serde),
        documents => (),
        add_generation_prompt => input.add_generation_prompt,
        bos_token => token(bos),
        eos_token => token(eos),
        strftime_now => Value::from_function(strftime_now),
    })
}

/// Says which template failed, where, and why, or what the template itself has to say.
pub fn explain(name: &str, error: &minijinja::Error) -> Error {
    let mut inner = error;
    while let Some(source) = inner.source().and_then(|source| source.downcast_ref()) {
        inner = source; // an error inside of an import or a block
    }
    let line = inner.line().map(|line| format!("line {line}: ")).unwrap_or_default();
    let what = match inner.source().and_then(|source| source.downcast_ref::<Raised>()) {
        Some(Raised(message)) => format!("{line}the template refuses these messages: {message}"),
        None if inner.kind() == ErrorKind::OutOfFuel => format!("{line}too many steps: it may have no end"),
        None => {
            let detail = inner.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
            // Templates in model files often are one long line, so the expression tells more than the line.
            let code = inner.range().and_then(|range| inner.template_source()?.get(range));
            let code: String = code.unwrap_or_default().chars().take(100).collect();
            let place = if code.is_empty() { code } else { format!(" in {:?}", code.trim()) };
            format!("{line}{}{detail}{place}", inner.kind())
        }
    };
    Error::Template { name: name.into(), what }
}

/// What a template says when it refuses its messages.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn raise_exception(message: Value) -> Result<Value, minijinja::Error> {
    let message = message.to_string();
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

/// `value|tojson(ensure_ascii, indent, separators, sort_keys)`, as `transformers` defines it over json.dumps. Jinja's
/// own filter would escape HTML.
fn tojson(value: &Value, args: Rest<ValueOrKwargs>) -> Result<Value, minijinja::Error> {
    let args = args.into_values();
    let (positional, named): (&[Value], Kwargs) = from_args(&args)?;
    const NAMES: [&str; 4] = ["ensure_ascii", "indent", "separators", "sort_keys"];
    if positional.len() > NAMES.len() {
        return Err(ErrorKind::TooManyArguments.into());
    }
    let argument = |i: usize| match positional.get(i) {
        Some(value) => Ok(Some(value.clone())),
        None => named.get::<Option<Value>>(NAMES[i]),
    };
    let indent = argument(1)?.filter(|indent| !indent.is_none());
    let mut style = Style {
        ensure_ascii: argument(0)?.is_some_and(|value| value.is_true()),
        indent: match &indent {
            None => None,
            Some(indent) => Some(match indent.as_str() {
                Some(text) => text.to_string(),
                None => " ".repeat(i64::try_from(indent.clone())?.clamp(0, 64) as usize),
            }),
        },
        item_separator: if indent.is_some() { "," } else { ", " }.into(),
        key_separator: ": ".into(),
        sort_keys: argument(3)?.is_some_and(|value| value.is_true()),
    };
    if let Some(separators) = argument(2)?.filter(|separators| !separators.is_none()) {
        style.item_separator = separators.get_item_by_index(0)?.to_string();
        style.key_separator = separators.get_item_by_index(1)?.to_string();
    }
    named.assert_all_used()?;
    json::dumps(value, &style).map(Value::from)
}

/// The value of a JSON text; `transformers` has no such filter, but templates made for other programs use it.
fn from_json(text: &str) -> Result<Value, minijinja::Error> {
    let json: Json = serde_json::from_str(text)
        .map_err(|e| minijinja::Error::new(ErrorKind::InvalidOperation, format!("from_json: {e}")))?;
    Ok(Serde(json).into())
}

/// minijinja takes no tags of others, and `{% generation %}` (it marks what a model is trained on) is one of
/// `transformers`. Its body is a scope of its own and printed as it is: `{% with %}` without variables does the same.
/// Only the tag's name changes, so the white-space signs around it and all line numbers stay.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        let name = tag.trim_start_matches(['-', '+']).trim_start();
        let (end, renamed) = if let Some(end) = name.strip_prefix("generation") {
            (end, "with")
        } else if let Some(end) = name.strip_prefix("endgeneration") {
            (end, "endwith")
        } else {
            (tag, "")
        };
        out += before;
        let closes = end.trim_start().trim_start_matches(['-', '+']).starts_with("%}");
        if !renamed.is_empty() && closes {
            out += &tag[..tag.len() - name.len()];
            out += renamed;
            rest = end;
        } else {
            rest = tag;
        }
    }
    out + rest
}
