//! Compares what a running server reports about itself with what its launch resolves to.

use std::time::Duration;

use anyhow::Context as _;
use external::{
    address::server_address,
    api::{Api, ServerInfo},
    http::ApiKey,
};
use launch::resolve::running;
use schemas::{engines::Engine, secrets, text::Source, version::EngineVersion};
use serde_json::{Value, json};

use super::{FileResult, check::RunningEngine};

/// Maximum time to wait for a response.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A server's description of itself.
pub(super) struct LintedServer {
    url: String,
    kind: Engine,
    /// The engine's name, and its version if reported.
    engine: String,
    version: Option<EngineVersion>,
    /// Names of the served models.
    models: Vec<String>,
    /// Its resolved arguments, if it reports them.
    answer: Option<Value>,
}

/// A comparison of what a launch resolves to with what the server runs.
pub(super) struct ServerComparison {
    /// Name of the text that contains the launch.
    name: String,
    compared: Vec<running::ComparedValue>,
}

impl LintedServer {
    /// Queries an SGLang, spectune or vLLM server.
    pub fn ask(url: &str, key: Option<ApiKey>) -> anyhow::Result<Self> {
        let url = &server_address(url).map_err(anyhow::Error::msg)?;
        let (_, info) = Api::recognise(url, key, TIMEOUT)?;
        Ok(Self::new(url, info))
    }

    /// A server that has described itself. Keys in its answer are hidden.
    pub fn new(url: &str, info: ServerInfo) -> Self {
        let (kind, engine) = match &info.resolved {
            _ if info.is_spectune() => (Engine::Spectune, "spectune"),
            // SGLang lists its arguments, vLLM nests them in configurations.
            Some(answer) if answer.get("model_path").is_some() => (Engine::Sglang, "SGLang"),
            _ => (Engine::Vllm, "vLLM"),
        };
        // The linter knows versions of SGLang and vLLM, not of our own engine.
        let version = info.version.as_deref().filter(|_| kind != Engine::Spectune);
        let version = version.and_then(|version| version.parse().ok());
        let engine = info.version.as_deref().map_or_else(|| engine.to_owned(), |version| format!("{engine} {version}"));
        let answer = info.resolved.as_ref().map(secrets::masked_json);
        Self { url: url.to_owned(), kind, engine, version, models: info.models, answer }
    }

    /// The engine that runs launches.
    pub fn runs(&self) -> RunningEngine {
        RunningEngine { kind: Some(self.kind), version: self.version }
    }

    /// The launch of the server, reconstructed from its response if no file is given.
    pub fn source(&self) -> anyhow::Result<Source> {
        let launch = self.answer.as_ref().and_then(running::launch_of);
        let launch = launch.with_context(|| {
            format!(
                "{} ({}) does not report its arguments; pass its launch file too (vLLM reports some with \
                 VLLM_SERVER_DEV_MODE=1)",
                self.url, self.engine
            )
        })?;
        Ok(Source::unseen(format!("<{}>", self.url), launch))
    }

    /// Where the launches of a checked text differ from what the server runs, one line each.
    #[cfg(feature = "engine")]
    pub fn differing(&self, checked: super::check::CheckedText) -> Vec<String> {
        let held = self.held(&[FileResult { checked, fixes: None, unwritten: None }]);
        let differing = held.iter().flat_map(|one| one.compared.iter().map(move |value| (&one.name, value)));
        let differing = differing.filter(|(_, value)| value.differs);
        let resolved = |value: &running::ComparedValue| value.resolved.clone().unwrap_or_else(|| "?".into());
        let line = |(name, value): (&String, &running::ComparedValue)| {
            format!(
                "{}: {name} resolves to {}, the server at {} runs {}",
                value.name,
                resolved(value),
                self.url,
                value.runs
            )
        };
        differing.map(line).collect()
    }

    /// Compares each SGLang launch with the server.
    pub fn held(&self, all: &[FileResult]) -> Vec<ServerComparison> {
        let Some(answer) = &self.answer else { return Vec::new() };
        let launches =
            all.iter().flat_map(|done| done.checked.resolved.iter().map(move |(_, one)| (&done.checked.source, one)));
        // Values are compared under SGLang's names.
        let launches = launches.filter(|(_, one)| one.vllm.is_none());
        let held = |(source, resolved): (&Source, _)| ServerComparison {
            name: source.name().to_owned(),
            compared: running::compare(resolved, source, answer),
        };
        launches.map(held).collect()
    }

    /// The comparison as text.
    pub fn table(&self, held: &[ServerComparison]) -> String {
        let models =
            if self.models.is_empty() { String::new() } else { format!(", serves {}", self.models.join(", ")) };
        let mut text = format!("{} runs {}{models}\n", self.url, self.engine);
        if let Some(speculation) =
            self.answer.as_ref().and_then(|answer| answer.pointer("/vllm_config/speculative_config"))
        {
            text.push_str(&format!("  speculative_config {speculation}\n"));
        }
        if held.is_empty() {
            text.push_str("  there is no SGLang launch to compare it with\n");
        }
        for one in held {
            let differing = one.differing();
            let verdict = match (one.compared.len(), differing) {
                (0, _) => "the server reports nothing that can be compared".to_owned(),
                (_, 0) => "the server runs what the launch resolves to".to_owned(),
                (_, 1) => "1 value differs".to_owned(),
                (_, more) => format!("{more} values differ"),
            };
            text.push_str(&format!("{}: {verdict}\n{}", one.name, running::table(&one.compared)));
        }
        text
    }

    /// The comparison as JSON.
    pub fn to_json(&self, held: &[ServerComparison]) -> Value {
        let launches = held.iter().map(|one| json!({ "file": one.name, "values": running::to_json(&one.compared) }));
        json!({ "url": self.url, "engine": self.engine, "models": self.models, "launches": launches.collect::<Vec<_>>() })
    }
}

impl ServerComparison {
    /// Number of values that differ.
    pub fn differing(&self) -> usize {
        self.compared.iter().filter(|one| one.differs).count()
    }
}
