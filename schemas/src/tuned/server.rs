//! How the servers were started that a sweep measured.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    secrets::HIDDEN,
    sweep::{SystemKind, SystemSettings},
};

/// What a sweep added to the command of each server. An exported launch of the same engine has it
/// too: without it another server would start than the one that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TunedServer {
    /// The engine: sglang or vllm.
    pub kind: SystemKind,
    /// As `system.extra_args` of the sweep, with secret values hidden.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// As `system.env` of the sweep, with secret values hidden.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// As `system.speculative_config` of the sweep.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub speculative_config: BTreeMap<String, serde_json::Value>,
}

/// An argument of a server's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerArgument {
    /// The flag as it is written, with its dashes; empty for words before the first flag.
    pub flag: String,
    /// Its values.
    pub words: Vec<String>,
}

impl ServerArgument {
    /// The flag without its dashes.
    pub fn name(&self) -> &str {
        self.flag.trim_start_matches('-')
    }
}

impl TunedServer {
    /// How the servers of a sweep are started; `None` for spectune's own engine in this process and
    /// for servers that ran already.
    pub fn from_system(system: &SystemSettings) -> Option<Self> {
        if system.is_in_process() || system.url.is_some() {
            return None;
        }
        let SystemSettings { kind, extra_args: arguments, env: environment, speculative_config, .. } = system.masked();
        Some(Self { kind, arguments, environment, speculative_config })
    }

    /// The arguments, one per flag.
    pub fn each(&self) -> Vec<ServerArgument> {
        let mut each: Vec<ServerArgument> = Vec::new();
        for word in &self.arguments {
            // A negative number is a value.
            let is_flag = word.starts_with('-') && word.parse::<f64>().is_err() && word.len() > 1;
            match (is_flag, each.last_mut()) {
                (false, Some(last)) => last.words.push(word.clone()),
                (false, None) => each.push(ServerArgument { flag: String::new(), words: vec![word.clone()] }),
                (true, _) => {
                    // JSON and paths may have an equals sign of their own.
                    let (flag, value) =
                        word.split_once('=').map_or((word.as_str(), None), |(flag, value)| (flag, Some(value)));
                    let words = value.map(ToOwned::to_owned).into_iter().collect();
                    each.push(ServerArgument { flag: flag.to_owned(), words });
                }
            }
        }
        each
    }

    /// Whether a secret value is hidden in the arguments or the environment.
    pub fn hides(&self) -> bool {
        self.arguments.iter().chain(self.environment.values()).any(|word| word.contains(HIDDEN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_flags_with_their_values() {
        let system = SystemSettings {
            kind: SystemKind::Sglang,
            command: vec!["sglang".into()],
            extra_args: ["--tp=2", "--api-key", "abc", "--moe-a2a-backend", "none", "--seed", "-1", "--skip-warmup"]
                .map(Into::into)
                .to_vec(),
            ..SystemSettings::default()
        };
        let server = TunedServer::from_system(&system).expect("a server that the sweep starts");
        let each: Vec<(String, String)> =
            server.each().iter().map(|one| (one.name().to_owned(), one.words.join(" "))).collect();
        let expected =
            [("tp", "2"), ("api-key", "***"), ("moe-a2a-backend", "none"), ("seed", "-1"), ("skip-warmup", "")];
        assert_eq!(each, expected.map(|(name, words)| (name.to_owned(), words.to_owned())));
        assert!(server.hides());
        assert_eq!(TunedServer::from_system(&SystemSettings { url: Some("http://a".into()), ..system }), None);
        assert_eq!(TunedServer::from_system(&SystemSettings::default()), None);
    }
}
