//! Values of flags that take JSON, and that an engine cannot read. The tables of flags say which
//! flags these are; the speculative configuration of vLLM has its own reader.

use schemas::{
    diagnostic::Severity,
    engines::Engine,
    finding::Finding,
    flags::{JsonForm, Lookup, ValueKind},
    text::{Located, Source},
    version::EngineVersion,
};
use serde_json::Value as Json;

use crate::{
    Argument, Value,
    context::TextContext,
    json_text::{GivenJson, place_of_error, shown},
    placeholder::{is_cut, may_replace_number},
    problems,
};

/// The advice if a value cannot be read.
const EXAMPLE: &str = "write JSON with double quotes, and single quotes around it for the shell: `'{\"key\": 1}'`";

/// What Python reads as a number, and other readers of JSON do not.
const NUMBERS_OF_PYTHON: [&str; 2] = ["NaN", "Infinity"];

/// What of the JSON of a launch's flags cannot be read, each with its place. A call gives values
/// themselves, which are not parsed.
pub(crate) fn bad_json(
    source: &Source,
    context: &TextContext,
    arguments: &[Argument],
    engine: Engine,
    version: Option<EngineVersion>,
) -> Vec<Finding> {
    let is_of_call = context.callee.is_some();
    let given = arguments.iter().filter(|argument| !is_of_call && !argument.is_positional());
    let found = given.filter_map(|argument| {
        let (form, is_certain) = form_of(&argument.flag.value, engine, version)?;
        // Several words are a list in a file of settings.
        let [word] = argument.values.as_slice() else { return None };
        let finding = judge(source, context, argument, word, form, engine)?;
        Some(if is_certain { finding } else { finding.at_most(Severity::Warning) })
    });
    found.collect()
}

/// The JSON that a flag takes, and whether every version with the flag takes it; `None` for other
/// flags.
fn form_of(flag: &str, engine: Engine, version: Option<EngineVersion>) -> Option<(JsonForm, bool)> {
    if engine == Engine::Spectune {
        return None;
    }
    let registered = engine.registered();
    let name = engine.flag_name(flag)?;
    let (Lookup::Exact(spelling) | Lookup::Abbreviation(spelling)) = registered.lookup(&name, version) else {
        return None;
    };
    let accepted = registered.accepted(spelling.canonical).filter(|_| spelling.canonical != "speculative-config")?;
    matches!(accepted.kind, ValueKind::Json(_)).then(|| accepted.json_in(version)).flatten()
}

fn judge(
    source: &Source,
    context: &TextContext,
    argument: &Argument,
    word: &Located<Value>,
    form: JsonForm,
    engine: Engine,
) -> Option<Finding> {
    let flag = &argument.flag.value;
    let text = word.value.known().filter(|text| !is_cut(text))?;
    let is_braced = text.trim_start().starts_with('{') && text.trim_end().ends_with('}');
    let is_json = text.contains(['{', '"']) || text.starts_with('[');
    // vLLM takes the first two for none.
    let is_none = matches!(text, "" | "None");
    if is_none || (form == JsonForm::TextOrDict && !is_braced) || (!is_json && may_replace_number(flag, text)) {
        return None;
    }
    match serde_json::from_str::<Json>(text) {
        // Some versions take a level in place of an object.
        Ok(Json::Object(_) | Json::Number(_) | Json::Null) => None,
        Ok(_) if matches!(form, JsonForm::Any | JsonForm::TextOrDict) => None,
        Ok(_) => {
            let message = format!("`{flag}` takes a JSON object, but got `{}`", shown(text));
            let mut finding = problems::BAD_VALUE.at(word.span, message, "not an object");
            finding.help = Some(EXAMPLE.into());
            Some(if form == JsonForm::Object { finding } else { finding.at_most(Severity::Warning) })
        }
        Err(_) if NUMBERS_OF_PYTHON.iter().any(|number| text.contains(number)) => None,
        Err(error) if form == JsonForm::Object && has_unit_at(text, place_of_error(text, &error).start) => None,
        Err(error) => {
            let says = match (engine, form) {
                (Engine::Vllm, JsonForm::Object) => Some("vllm: \"Invalid JSON\"".to_owned()),
                (Engine::Vllm, _) => {
                    Some(format!("vllm: \"Value {} cannot be converted to <function loads>\"", shown(text)))
                }
                _ => None,
            };
            GivenJson { source, context, flag, word, text }.unreadable(&error, EXAMPLE, says)
        }
    }
}

/// Whether a letter stands behind a number, which vLLM multiplies: `{"cpu_bytes_to_use": 80m}`.
fn has_unit_at(text: &str, at: usize) -> bool {
    let (before, rest) = text.split_at_checked(at).unwrap_or_default();
    rest.starts_with(['k', 'K', 'm', 'M', 'g', 'G', 't', 'T']) && before.ends_with(|last: char| last.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use schemas::text::Source;

    use crate::{Options, parse};

    /// What is found, with its place in the text.
    fn check(command: &str, version: &str, expected: &[&str]) {
        let source = Source::new("run.sh", command);
        let options = Options { version: version.parse().ok(), ..Options::default() };
        let found = parse(&source, &options).findings;
        let shown: Vec<String> = found
            .iter()
            .filter(|found| found.code != "LT07")
            .map(|found| {
                format!("{} {} {} at `{}`", found.code, found.harm.word(), found.message, source.slice(found.span))
            })
            .collect();
        assert_eq!(shown, expected, "{command}");
    }

    #[test]
    fn json_that_cannot_be_read_is_found_for_every_flag_of_the_tables() {
        for (command, flag) in [
            ("sglang serve --model-path m", "--json-model-override-args"),
            ("sglang serve --model-path m", "--mm-process-config"),
            ("vllm serve m", "--hf-overrides"),
            ("vllm serve m", "--compilation-config"),
            ("vllm serve m", "--kv-transfer-config"),
            ("vllm serve m", "--override_generation_config"),
            ("vllm serve m", "-cc"),
        ] {
            let version = if command.starts_with("vllm") { "0.33.0" } else { "0.5.23" };
            let broken = format!("LT14 error the JSON of `{flag}` cannot be read: trailing comma at `}}`");
            check(&format!("{command} {flag} '{{\"a\": 1,}}'"), version, &[&broken]);
            let single = format!("LT14 error the JSON of `{flag}` cannot be read: key must be a string at `'`");
            check(&format!("{command} {flag} \"{{'a': 1}}\""), version, &[&single]);
            let bare = format!(
                "LT14 error the shell removes the quotes from the JSON of `{flag}`: `{{a:1}}` arrives at `{{\"a\":1}}`"
            );
            check(&format!("{command} {flag} {{\"a\":1}}"), version, &[&bare]);
            for fine in ["'{\"a\": 1}'", "'{}'", "$JSON", "'{\"a\": ...}'", "'{\"a\": N}'", "'{\"a\": NaN}'"] {
                check(&format!("{command} {flag} {fine}"), version, &[]);
            }
        }
    }

    #[test]
    fn json_of_another_type_is_found() {
        check(
            "vllm serve m --compilation-config '[1]'",
            "0.33.0",
            &["LT13 error `--compilation-config` takes a JSON object, but got `[1]` at `'[1]'`"],
        );
        check(
            "sglang serve --model-path m --json-model-override-args '[{\"a\": 1}]'",
            "0.5.23",
            &[
                "LT13 warning `--json-model-override-args` takes a JSON object, but got `[{\"a\": 1}]` at `'[{\"a\": 1}]'`",
            ],
        );
        // A level, a unit and a text are what some versions take.
        for fine in ["--compilation-config 3", "--kv-transfer-config '{\"a\": 80m}'", "--hf-overrides '[1]'"] {
            check(&format!("vllm serve m {fine}"), "0.33.0", &[]);
        }
        check("sglang serve --model-path m --preferred-sampling-params '[1]'", "0.5.23", &[]);
    }

    #[test]
    fn other_flags_are_not_read() {
        check("vllm serve m --chat-template '{\"a\": 1,}'", "0.33.0", &[]);
        check("vllm serve m --compilation-config.level '{\"a\": 1,}'", "0.33.0", &[]);
    }
}
