//! Trainers with Hydra overrides, `path.of.key=value`: verl and NeMo-RL, which start engines
//! themselves.

use std::borrow::Cow;

use schemas::{
    engines::Engine,
    text::{Located, Span},
};

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

/// verl's section on multi-token prediction, which it passes on to the engine.
const MTP: &str = ".model.mtp.";

/// verl's key of the model that the engine serves.
const MODEL: &str = "actor_rollout_ref.model.path";

/// The index of the word that names the program.
pub fn program(texts: &[&str], words: &[Field<'_>]) -> Option<usize> {
    let given = || texts.iter().filter_map(|text| argument(text)).any(|argument| argument.flag.is_none());
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

/// An override that is an argument of the engine.
struct Override<'t> {
    engine: Option<Engine>,
    /// Offset of its key.
    key: usize,
    name: &'t str,
    /// The engine's flag, if it has another name.
    flag: Option<&'static str>,
    /// Offset of its value.
    value: usize,
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
        return Some(Override { engine: None, key, name: MODEL, flag: Some("--model"), value });
    }
    let behind = |section: &str| match section.starts_with('.') {
        true => path.find(section).map(|at| at + section.len()),
        false => path.trim_start_matches('+').strip_prefix(section).map(|rest| path.len() - rest.len()),
    };
    let (engine, key) = SECTIONS
        .iter()
        .find_map(|(section, engine)| Some((Some(*engine), behind(section)?)))
        .or_else(|| Some((None, behind(MTP)?)))?;
    let name = path.get(key..)?;
    let of_mtp = engine.is_none();
    (!of_mtp || name.starts_with("speculative_")).then_some(Override { engine, key, name, flag: None, value })
}

/// The engine's arguments among some words, as flags with their values, each with its own span.
pub fn as_flags<'a>(source_of: impl Fn(Span) -> &'a str, words: &[Field<'a>]) -> Vec<Field<'a>> {
    let mut fields = Vec::new();
    for word in words {
        let text = word.value.written();
        let Some(Override { key, name, flag, value, .. }) = argument(text) else { continue };
        let stands = source_of(word.span) == text;
        let place = |from: usize, to: usize| match stands {
            true => Span::new(word.span.start + from, word.span.start + to),
            false => word.span,
        };
        let flag = flag.map_or_else(|| format!("--{}", dashed(name)), str::to_owned);
        let flag: CommandText<'a> = Value::Known(Cow::Owned(flag));
        fields.push(Located::new(flag, place(key, key + name.len())));
        let written = text.get(value..).unwrap_or_default();
        let unquoted = written.trim_matches(['"', '\'']);
        let is_known = word.value.known().is_some();
        let value_place = place(value, text.len());
        match unquoted {
            // Hydra's switches become flags without a value, and `false` is the flag left away.
            "true" | "True" => {}
            "false" | "False" | "null" | "None" => drop(fields.pop()),
            _ if is_known => fields.push(Located::new(Value::Known(Cow::Owned(unquoted.to_owned())), value_place)),
            _ => fields.push(Located::new(Value::Unknown(Cow::Owned(written.to_owned())), value_place)),
        }
    }
    fields
}

/// A dot is followed by the key of a value.
fn dashed(name: &str) -> String {
    match name.split_once('.') {
        Some((flag, inside)) => format!("{}.{inside}", flag.replace('_', "-")),
        None => name.replace('_', "-"),
    }
}
