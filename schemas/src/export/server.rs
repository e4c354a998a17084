//! The arguments of the servers that were measured, in the launch of the same engine.

use super::{Form, Remarks, Tuning, words::ExportFlag};
use crate::{
    flags::{Key, Lookup, by_name, lookup, vllm},
    quoting::quoted,
    secrets::HIDDEN,
    sweep::SystemKind,
    tuned::{ServerArgument, TunedServer},
};

/// Flags of SGLang that the tuned file has, beside those of the shape.
const OF_THE_TABLE: &[Key] =
    &[Key::ModelPath, Key::SpeculativeAlgorithm, Key::SpeculativeDraftModelPath, Key::MaxRunningRequests];

/// The same of vLLM.
const OF_THE_TABLE_IN_VLLM: &[&str] = &["model", "max-num-seqs", "speculative-config"];

/// The engine of a kind of servers.
pub fn engine(kind: SystemKind) -> &'static str {
    match kind {
        SystemKind::Spectune => "spectune",
        SystemKind::Sglang => "SGLang",
        SystemKind::Vllm => "vLLM",
    }
}

impl Tuning {
    /// How the measured servers were started, if they are of the engine of an exported launch.
    pub(super) fn server_of(&self, form: Form) -> Option<&TunedServer> {
        self.server.as_ref().filter(|server| engine(server.kind) == form.engine())
    }
}

/// The arguments of SGLang's servers that spectune has a row for, which replace those of the tuned
/// file, and the others.
pub fn sglang_arguments(server: Option<&TunedServer>) -> (Vec<ExportFlag>, Vec<ServerArgument>) {
    let (mut known, mut others) = (Vec::<ExportFlag>::new(), Vec::new());
    for argument in server.iter().flat_map(|server| server.each()) {
        let name = match lookup(argument.name(), None) {
            Lookup::Exact(spelling) | Lookup::Abbreviation(spelling) => spelling.canonical,
            Lookup::Ambiguous(_) | Lookup::Unknown => argument.name(),
        };
        let row = by_name(name).filter(|row| !row.of_slime);
        match row.map(|row| row.key) {
            Some(key) if OF_THE_TABLE.contains(&key) => {}
            // The engine takes the last one of a flag that is given twice.
            Some(key) => {
                known.retain(|flag| flag.key != key);
                known.push(ExportFlag { key, words: argument.words });
            }
            None => others.push(argument),
        }
    }
    (known, others)
}

/// The arguments of vLLM's servers, apart from what the table replaces.
pub fn vllm_arguments(server: Option<&TunedServer>) -> Vec<ServerArgument> {
    let mut each = server.map(TunedServer::each).unwrap_or_default();
    each.retain(|argument| !OF_THE_TABLE_IN_VLLM.contains(&vllm_name(argument).as_str()));
    each
}

/// The name of the argument that a flag of vLLM sets.
pub fn vllm_name(argument: &ServerArgument) -> String {
    let name = argument.name().replace('_', "-");
    vllm().spelling(&name).map_or(name, |spelling| spelling.canonical.to_owned())
}

/// An argument as it is written in a command; `prefix` replaces the dashes of a long flag.
pub fn written(argument: &ServerArgument, prefix: &str) -> String {
    let ServerArgument { flag, words } = argument;
    let flag = flag.strip_prefix("--").map_or_else(|| flag.clone(), |name| format!("{prefix}{name}"));
    let words = words.iter().map(|word| quoted(word));
    Some(flag).filter(|flag| !flag.is_empty()).into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

/// What is said of the measured servers' arguments.
pub fn remark(tuning: &Tuning, form: Form, remarks: &mut Remarks) {
    let Some(server) = &tuning.server else { return };
    let shown = server.arguments.join(" ");
    match tuning.server_of(form) {
        None if shown.is_empty() => {}
        None => remarks.general.push(format!(
            "left out, because they are arguments of {}, which was measured: {shown}",
            engine(server.kind)
        )),
        Some(server) if server.hides() => remarks.general.push(format!(
            "replace {HIDDEN}: the sweep's servers had secret values there, which the tuned file does not hold"
        )),
        Some(_) => {}
    }
}
