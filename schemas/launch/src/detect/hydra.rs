//! Trainers with Hydra overrides, `path.of.key=value`: verl and NeMo-RL, which start engines
//! themselves.

use std::borrow::Cow;

use schemas::{
    engines::Engine,
    text::{Located, Span},
};

use super::verl;
use crate::{
    Value,
    command::{CommandText, Field},
};

/// Sections whose keys are an engine's own arguments.
const SECTIONS: [(&str, Engine); 6] = [
    (".engine_kwargs.sglang.", Engine::Sglang),
    (".engine_kwargs.vllm.", Engine::Vllm),
    (".sglang_kwargs.", Engine::Sglang),
    (".sglang_cfg.", Engine::Sglang),
    (".vllm_kwargs.", Engine::Vllm),
    ("sglang.", Engine::Sglang),
];

/// verl's sections on multi-token prediction, whose keys are in `verl`.
const MTP: [&str; 2] = [".model.mtp.", ".rollout.mtp."];

/// verl's key of the model that the engine serves.
const MODEL: &str = "actor_rollout_ref.model.path";

/// verl's section on the engine itself, whose keys of ranks and limits are in `verl`.
const ROLLOUT: &str = "actor_rollout_ref.rollout.";

/// The index of the word that names the program.
pub fn program(texts: &[&str], words: &[Field<'_>]) -> Option<usize> {
    let is_own = |argument: &Override<'_>| argument.flag.is_none() && argument.section != OverrideSection::Rollout;
    let given = || texts.iter().filter_map(|text| argument(text)).any(|argument| is_own(&argument));
    let at = words.iter().position(|word| {
        // A variable before it may hold its folder.
        let text = word.value.written();
        let module = text.ends_with(".py") || text.starts_with("verl.") || text.starts_with("areal.");
        module || text.starts_with("nemo_rl.") || text.starts_with("recipe.")
    })?;
    given().then_some(at)
}

/// The engine that the overrides are for.
pub fn engine(texts: &[&str]) -> Option<Engine> {
    let named = texts
        .iter()
        .find_map(|text| text.split_once("rollout.name=").or_else(|| text.split_once("generation.backend=")));
    match named.map(|(_, name)| name.trim_matches(['"', '\''])) {
        Some("sglang") => Some(Engine::Sglang),
        Some("vllm") => Some(Engine::Vllm),
        _ => texts.iter().find_map(|text| argument(text)?.engine),
    }
}

/// An override that says how the engine runs.
struct Override<'t> {
    /// The engine, if the section is of one.
    engine: Option<Engine>,
    /// Offset of its key.
    key: usize,
    name: &'t str,
    /// The engine's flag, if it has another name.
    flag: Option<&'static str>,
    section: OverrideSection,
    /// Offset of its value.
    value: usize,
}

/// Whose key an override sets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OverrideSection {
    /// The engine's own.
    Engine,
    /// One of verl's section on multi-token prediction.
    Mtp,
    /// One of verl's section on the engine itself.
    Rollout,
}

fn argument(text: &str) -> Option<Override<'_>> {
    let (path, _) = text.split_once('=').filter(|(path, _)| !path.starts_with('-'))?;
    let in_path = |byte: u8| byte.is_ascii_alphanumeric() || b"_.+~-".contains(&byte);
    if !path.bytes().all(in_path) {
        return None;
    }
    let value = path.len() + 1;
    if path.trim_start_matches('+') == MODEL {
        let key = path.len() - MODEL.len();
        let section = OverrideSection::Engine;
        return Some(Override { engine: None, key, name: MODEL, flag: Some("--model"), section, value });
    }
    if let Some(name) = path.trim_start_matches('+').strip_prefix(ROLLOUT).filter(|name| verl::is_of_rollout(name)) {
        let (key, section) = (path.len() - name.len(), OverrideSection::Rollout);
        return Some(Override { engine: None, key, name, flag: None, section, value });
    }
    let behind = |section: &str| match section.starts_with('.') {
        true => path.find(section).map(|at| at + section.len()),
        false => path.trim_start_matches('+').strip_prefix(section).map(|rest| path.len() - rest.len()),
    };
    let (engine, key) = SECTIONS
        .iter()
        .find_map(|(section, engine)| Some((Some(*engine), behind(section)?)))
        .or_else(|| MTP.iter().find_map(|section| Some((None, behind(section)?))))?;
    let name = path.get(key..)?;
    let section = if engine.is_none() { OverrideSection::Mtp } else { OverrideSection::Engine };
    let is_known = engine.is_some() || verl::is_of_engine(name);
    is_known.then_some(Override { engine, key, name, flag: None, section, value })
}

/// The engine's arguments among some words, as flags with their values, each with its own span.
pub fn as_flags<'a>(source_of: impl Fn(Span) -> &'a str, words: &[Field<'a>], of_engine: Engine) -> Vec<Field<'a>> {
    let (mut fields, mut switches, mut of_rollout) = (Vec::new(), Vec::new(), Vec::new());
    for word in words {
        let text = word.value.written();
        let Some(Override { key, name, flag, section, value, .. }) = argument(text) else { continue };
        let stands = source_of(word.span) == text;
        let place = |from: usize, to: usize| match stands {
            true => Span::new(word.span.start + from, word.span.start + to),
            false => word.span,
        };
        let (name_place, value_place) = (place(key, key + name.len()), place(value, text.len()));
        let written = text.get(value..).unwrap_or_default();
        let unquoted = written.trim_matches(['"', '\'']);
        let is_known = word.value.known().is_some();
        let given: CommandText<'a> = match is_known {
            true => Value::Known(json_of(unquoted).unwrap_or_else(|| unquoted.to_owned()).into()),
            false => Value::Unknown(written.to_owned().into()),
        };
        let given = Located::new(given, value_place);
        let own = |given| verl::VerlSwitch { name: name.to_owned(), place: name_place, given };
        match section {
            OverrideSection::Engine => {}
            OverrideSection::Mtp => {
                switches.push(own(given));
                continue;
            }
            OverrideSection::Rollout => {
                of_rollout.push(own(given));
                continue;
            }
        }
        let flag = flag.map_or_else(|| format!("--{}", dashed(name)), str::to_owned);
        let flag: CommandText<'a> = Value::Known(Cow::Owned(flag));
        match unquoted {
            // Hydra's switches become flags without a value, and `false` is the flag left away.
            "true" | "True" => fields.push(Located::new(flag, name_place)),
            "false" | "False" | "null" | "None" => {}
            _ => fields.extend([Located::new(flag, name_place), given]),
        }
    }
    let has = |names: &[&str]| words.iter().any(|word| names.iter().any(|name| word.value.written().starts_with(name)));
    let has_own_config = has(&["--config-path", "--config-dir"]);
    let of_mtp = verl::flags(&switches, of_engine, has_own_config, &fields);
    // Where a config of the user's own gives these numbers, they are not known.
    let is_verl = !has_own_config && !has(&["--config-name"]);
    let engine = words.iter().find(|word| word.value.written().starts_with("actor_rollout_ref.rollout.name="));
    let of_rollout =
        verl::rollout_flags(&of_rollout, of_engine, engine.map(|word| word.span).filter(|_| is_verl), &fields);
    fields.extend(of_mtp);
    fields.extend(of_rollout);
    fields
}

/// A dot is followed by the key of a value.
fn dashed(name: &str) -> String {
    match name.split_once('.') {
        Some((flag, inside)) => format!("{}.{inside}", flag.replace('_', "-")),
        None => name.replace('_', "-"),
    }
}

/// A map in Hydra's notation (`{method: eagle3, tokens: 3}`) as JSON; `None` for anything else, and
/// for JSON.
fn json_of(text: &str) -> Option<String> {
    let inside = |text: &str| text.starts_with('{') && text.ends_with('}');
    if !inside(text) || serde_json::from_str::<serde_json::Value>(text).is_ok() {
        return None;
    }
    let mut json = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_mark = |letter: char| "{}[],:".contains(letter);
        if is_mark(first) || first.is_whitespace() {
            json.push(first);
            rest = rest.get(first.len_utf8()..)?;
            continue;
        }
        let word = if matches!(first, '"' | '\'') {
            let end = rest.get(1..)?.find(first)? + 1;
            rest.get(..=end)?
        } else {
            rest.get(..rest.find(is_mark).unwrap_or(rest.len()))?
        };
        rest = rest.get(word.len()..)?;
        let word = word.trim();
        let is_plain = serde_json::from_str::<serde_json::Value>(word).is_ok();
        let unquoted = word.trim_matches(['"', '\'']);
        json.push_str(&if is_plain { word.to_owned() } else { serde_json::Value::from(unquoted).to_string() });
    }
    serde_json::from_str::<serde_json::Value>(&json).is_ok().then_some(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_of_hydra_are_read_as_json() {
        let check = |text: &str, json: Option<&str>| assert_eq!(json_of(text).as_deref(), json, "{text}");
        check(
            "{method: eagle3, num_speculative_tokens: 0}",
            Some(r#"{"method": "eagle3", "num_speculative_tokens": 0}"#),
        );
        check("{a:'b c',d:[1,x],e:{f:true}}", Some(r#"{"a":"b c","d":[1,"x"],"e":{"f":true}}"#));
        check(r#"{"method": "mtp"}"#, None);
        check("plain", None);
        check("{unclosed: [1}", None);
    }
}
