//! The batch sizes for which SGLang captured CUDA graphs, if neither its log nor its arguments list
//! them: what a launch with these arguments resolves to.

use external::{api::ApiKind, log::ServerLog};
use launch::{Options, resolve};
use schemas::{engines::Engine, keywords::Callee, text::Source, version::EngineVersion};
use serde_json::Value;

/// The sizes, ascending; empty if they are not known.
pub fn sizes(log: &ServerLog) -> Vec<usize> {
    let settings = &log.settings;
    if !settings.captured.is_empty() || log.kind != ApiKind::Sglang || settings.engine.is_some() {
        return settings.captured.clone();
    }
    let stated = settings.version.as_deref().and_then(|version| version.parse().ok());
    let versions = stated.map_or_else(|| versions_of(&settings.arguments), |version| vec![version]);
    let found: Option<Vec<Vec<usize>>> =
        versions.into_iter().map(|version| resolved(&settings.arguments, version, settings.free_memory)).collect();
    let mut found = found.unwrap_or_default();
    found.dedup();
    match &mut found[..] {
        [one] => std::mem::take(one),
        _ => Vec::new(),
    }
}

/// The versions that have exactly these arguments. Names that no version has, such as those of a
/// fork, do not count.
fn versions_of(arguments: &Value) -> Vec<EngineVersion> {
    let Some(arguments) = arguments.as_object().filter(|arguments| !arguments.is_empty()) else { return Vec::new() };
    let has_them = |version: &&EngineVersion| {
        let mut keywords = Callee::ServerArgs.keywords();
        keywords.all(|keyword| {
            let is_other = || Callee::ServerArgs.keyword(keyword.name, Some(**version)).is_some();
            arguments.contains_key(keyword.name) == (keyword.exists_in(**version) || is_other())
        })
    };
    Engine::Sglang.registered().versions().iter().filter(has_them).copied().collect()
}

fn resolved(arguments: &Value, version: EngineVersion, free_memory: Option<u64>) -> Option<Vec<usize>> {
    let source = Source::new("server_args", resolve::running::launch_of(arguments)?);
    let parsed = launch::parse(&source, &Options::default());
    let resolved = resolve::resolve(parsed.launches.first()?, version, true, None, None, free_memory);
    Some(resolved.capture_sizes?.value)
}
