//! Values of the speculative configuration that vLLM cannot read.

use schemas::{
    finding::Finding,
    text::{Located, Source, Span},
};
use serde_json::{Map, Value as Json};

use super::keys::{ConfigFlag, named};
use crate::{
    Argument, Value,
    context::TextContext,
    json_text::{GivenJson, place_of, shown},
    placeholder::{is_cut, may_replace_value},
    problems,
};

/// Keys that take an integer (vLLM `config/speculative.py`).
const INTEGERS: [&str; 6] = [
    "disable_by_batch_size",
    "draft_tensor_parallel_size",
    "max_model_len",
    "num_speculative_tokens",
    "prompt_lookup_max",
    "prompt_lookup_min",
];

/// Keys that take a text.
const TEXTS: [&str; 4] = ["method", "model", "quantization", "revision"];

/// What of the speculative configuration cannot be read, each with its place.
///
/// In a file of settings a list of numbers may be the values that a sweep goes through.
pub(crate) fn bad_values(
    source: &Source,
    context: &TextContext,
    arguments: &[Argument],
    is_config: bool,
) -> Vec<Finding> {
    let mut found = Vec::new();
    for argument in arguments {
        let Some(word) = argument.values.first() else { continue };
        let Some(text) = word.value.known().filter(|text| !is_cut(text)) else { continue };
        if !text.contains('{') && !text.starts_with('[') && may_replace_value(text) {
            continue;
        }
        match named(&argument.flag.value) {
            None => {}
            Some(ConfigFlag::Whole) => whole(source, context, argument, word, text, is_config, &mut found),
            Some(ConfigFlag::Key(key)) => {
                let value = serde_json::from_str(text).unwrap_or_else(|_| Json::from(text));
                // A text that looks like a number is a text all the same.
                found.extend(
                    wrong(&key.replace('-', "_"), &value)
                        .filter(|wrong| wrong.takes_integer)
                        .map(|wrong| wrong.at(word.span)),
                );
            }
        }
    }
    found
}

/// The number to which vLLM converts a value: pydantic accepts `3.0` and `"3"` as 3.
pub(super) fn integer(value: &Json) -> Option<i64> {
    match value {
        Json::Number(number) => number.as_i64().or_else(|| {
            // The bound keeps the conversion exact.
            number.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 9e15).map(|number| number as i64)
        }),
        Json::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// The JSON of the whole configuration.
fn whole(
    source: &Source,
    context: &TextContext,
    argument: &Argument,
    word: &Located<Value>,
    text: &str,
    is_config: bool,
    found: &mut Vec<Finding>,
) {
    let flag = &argument.flag.value;
    // vLLM takes both for none.
    if matches!(text, "" | "None") {
        return;
    }
    match serde_json::from_str(text) {
        Ok(Json::Object(mut object)) => {
            object.retain(|_, value| !(is_config && value.is_array()));
            check_object(source, word, text, &object, found);
        }
        Ok(_) => {
            let message = format!("`{flag}` takes a JSON object, but got `{}`", shown(text));
            let mut finding = problems::BAD_VALUE.at(word.span, message, "not an object");
            finding.help = Some(EXAMPLE.into());
            found.push(finding);
        }
        Err(error) => {
            let note = format!("vllm: \"Value {} cannot be converted to <function loads>\"", shown(text));
            let given = GivenJson { source, context, flag, word, text };
            found.extend(given.unreadable(&error, EXAMPLE, Some(note)));
        }
    }
}

/// The advice if the value is not an object.
const EXAMPLE: &str = "write JSON with double quotes, and single quotes around it for the shell: \
                       `'{\"method\": \"eagle3\", \"model\": \"DRAFT\", \"num_speculative_tokens\": 3}'`";

fn check_object(
    source: &Source,
    word: &Located<Value>,
    text: &str,
    object: &Map<String, Json>,
    found: &mut Vec<Finding>,
) {
    for (key, value) in object {
        if let Some(wrong) = wrong(&key.replace('-', "_"), value) {
            found.push(wrong.at(place_of(source, word, text, place_of_value(text, key))));
        }
    }
}

/// A value of the wrong type.
struct JsonFieldError<'a> {
    key: &'a str,
    value: &'a Json,
    takes_integer: bool,
}

fn wrong<'a>(key: &'a str, value: &'a Json) -> Option<JsonFieldError<'a>> {
    let placeholder = value.as_str().is_some_and(may_replace_value);
    let takes_integer = INTEGERS.contains(&key);
    let is_wrong = match value {
        // Python takes truth values for numbers.
        Json::Null | Json::Bool(_) if takes_integer => false,
        _ if takes_integer => !placeholder && integer(value).is_none(),
        Json::Null | Json::String(_) => false,
        _ => TEXTS.contains(&key),
    };
    is_wrong.then_some(JsonFieldError { key, value, takes_integer })
}

impl JsonFieldError<'_> {
    fn at(&self, place: Span) -> Finding {
        let (what, label) =
            if self.takes_integer { ("an integer", "not an integer") } else { ("a text", "not a text") };
        let message = format!("`{}` takes {what}, but got `{}`", self.key, shown(&self.value.to_string()));
        let mut finding = problems::BAD_VALUE.at(place, message, label);
        let words = if self.takes_integer { "a valid integer" } else { "a valid string" };
        finding.notes.push(format!("vllm: \"Input should be {words}\""));
        finding
    }
}

/// Where the value of a key stands in a text that is an object; the whole where it is not found, or
/// not surely.
fn place_of_value(text: &str, key: &str) -> Span {
    let whole = Span::new(0, text.len());
    let quoted = format!("\"{key}\"");
    let mut values = text.match_indices(&quoted).filter_map(|(at, _)| {
        let rest = text.get(at + quoted.len()..)?.trim_start().strip_prefix(':')?.trim_start();
        let start = text.len() - rest.len();
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Json>();
        values.next()?.ok()?;
        Some(Span::new(start, start + values.byte_offset()))
    });
    match (values.next(), values.next()) {
        (Some(value), None) => value,
        _ => whole,
    }
}

#[cfg(test)]
mod tests {
    use schemas::text::Source;

    use crate::{Options, parse};

    /// What is found, with its place in the text.
    fn check(flags: &str, expected: &[&str]) {
        let source = Source::new("run.sh", format!("vllm serve x {flags}"));
        let found = parse(&source, &Options::default()).findings;
        let shown: Vec<String> = found
            .iter()
            .filter(|found| found.code != "LT07")
            .map(|found| format!("{} {} at `{}`", found.code, found.message, source.slice(found.span)))
            .collect();
        assert_eq!(shown, expected, "{flags}");
    }

    #[test]
    fn json_that_cannot_be_read_is_stated_with_its_place() {
        let broken = "LT14 the JSON of `--speculative-config` cannot be read:";
        check(
            "--speculative-config '{\"method\": \"ngram\" \"model\": \"x\"}'",
            &[&format!("{broken} expected `,` or `}}` at `\"`")],
        );
        check(
            "--speculative-config '{\"method\": \"ngram\"'",
            &[&format!("{broken} EOF while parsing an object at `\"`")],
        );
        check(
            "--speculative_config=\"{'method': 'ngram'}\"",
            &["LT14 the JSON of `--speculative_config` cannot be read: key must be a string at `'`"],
        );
        check(
            "-sc {\"method\":\"ngram\"}",
            &["LT14 the shell removes the quotes from the JSON of `-sc`: `{method:ngram}` arrives at \
                 `{\"method\":\"ngram\"}`"],
        );
        check("--speculative-config '{\n\"ä\": 1,\n}'", &[&format!("{broken} trailing comma at `}}`")]);
        for fine in ["'{\"method\": ...}'", "$SPEC", "'{\"model\": \"{{ draft }}\"'", "None", "'{}'"] {
            check(&format!("--speculative-config {fine}"), &[]);
        }
    }

    #[test]
    fn values_of_another_type_are_stated_with_their_place() {
        let json =
            |value: &str| format!("--speculative-config '{{\"num_speculative_tokens\": {value}, \"model\": \"x\"}}'");
        for value in ["\"three\"", "2.5", "[3]", "{\"a\": 3}"] {
            let compact = value.replace(": ", ":");
            let stated = format!("LT13 `num_speculative_tokens` takes an integer, but got `{compact}` at `{value}`");
            check(&json(value), &[&stated]);
        }
        for fine in ["3", "3.0", "\"3\"", "null", "\"N\"", "\"<N>\""] {
            check(&json(fine), &[]);
        }
        check(
            "--speculative-config '{\"method\": 3, \"prompt_lookup_max\": \"x\", \"model\": null, \"other\": []}'",
            &[
                "LT13 `method` takes a text, but got `3` at `3`",
                "LT13 `prompt_lookup_max` takes an integer, but got `\"x\"` at `\"x\"`",
            ],
        );
        check("-sc '[1]'", &["LT13 `-sc` takes a JSON object, but got `[1]` at `'[1]'`"]);
        check("-sc \"{\\\"method\\\": 3}\"", &["LT13 `method` takes a text, but got `3` at `\"{\\\"method\\\": 3}\"`"]);
    }

    #[test]
    fn flags_of_their_own_are_judged_too() {
        for flag in ["--speculative-config.num_speculative_tokens", "-sc.num_speculative_tokens", "--spec-tokens"] {
            check(
                &format!("{flag} three --spec-model 3 --spec-method $M"),
                &["LT13 `num_speculative_tokens` takes an integer, but got `\"three\"` at `three`"],
            );
            check(&format!("{flag} 3"), &[]);
            check(&format!("{flag}=$N"), &[]);
        }
        check("--dtype half -tp two", &["LT13 `-tp` takes a number, but got `two` at `two`"]);
        check("--tensor-parallel-size 2 -sc", &["LT05 `-sc` has no value at `-sc`"]);
    }
}
