//! The system to measure: spectune's own engine, or a server of another engine.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    engines::Engine,
    secrets::{self, Secrets},
    toml_file::FieldError,
};

/// The system that a sweep measures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SystemSettings {
    /// Which engine: spectune (in this process), sglang or vllm.
    pub kind: SystemKind,
    /// The command that starts a server, such as ["python3", "-m", "sglang.launch_server"]. The
    /// flags of each configuration follow, then `extra_args`.
    pub command: Vec<String>,
    /// Arguments added to every start; flags given here override those of the configuration.
    pub extra_args: Vec<String>,
    /// Environment variables of every start, in addition to those of this process.
    pub env: BTreeMap<String, String>,
    /// vLLM: further keys of `--speculative-config` of every start that speculates.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub speculative_config: BTreeMap<String, serde_json::Value>,
    /// Keep the prefix cache on. It is flushed before every trial, so that repeats do not find
    /// their own prompts in it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep_prefix_cache: bool,
    /// The address at which the server that `command` starts answers, such as
    /// "http://node-1:30000", if that is another machine or a router in front of it. By default,
    /// every start gets a free port of 127.0.0.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Instead of `command`: a running server, such as "http://127.0.0.1:30000". It is measured as
    /// it is, in the one configuration that it runs, and is never stopped.
    pub url: Option<String>,
    /// With `url`: name of the environment variable that holds the server's API key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// With `url`: flush the server's prefix cache before every trial. It then also forgets the
    /// prompts of other users.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub flush: bool,
    /// Startup timeout of a server, in seconds.
    pub start_timeout_s: f64,
}

/// An engine that can be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SystemKind {
    /// spectune's own, in this process.
    #[default]
    Spectune,
    /// A server of SGLang, or one that speaks its API.
    Sglang,
    /// A server of vLLM.
    Vllm,
}

/// SGLang's environment variable that simulates acceptance.
pub const SIMULATED_LENGTH: &str = "SGLANG_SIMULATE_ACC_LEN";

/// The flag of spectune's own server that does so.
const SIMULATED_FLAG: &str = "--simulate-accept-length";

/// Maximum start timeout in seconds: one day, longer than any engine takes to start.
const LONGEST_START_S: f64 = 86_400.0;

/// Whether a text can be the address of servers that a start command starts: they are reached
/// without encryption.
pub fn is_server_address(address: &str) -> bool {
    address.starts_with("http://")
}

impl SystemSettings {
    /// Whether it is spectune's own engine, in this process.
    pub fn is_in_process(&self) -> bool {
        self.kind == SystemKind::Spectune && self.url.is_none()
    }

    /// The same with secret values of the environment and of the command hidden, as it may be shown
    /// and stored.
    pub fn masked(&self) -> Self {
        let value = |(name, value): (&String, &String)| (name.clone(), secrets::masked_value(name, value).to_owned());
        // One after the other, so that a flag at the end of the command finds its value.
        let words = secrets::masked_words(&[self.command.as_slice(), &self.extra_args].concat());
        let (command, extra_args) = words.split_at(self.command.len());
        Self {
            command: command.to_vec(),
            extra_args: extra_args.to_vec(),
            env: self.env.iter().map(value).collect(),
            ..self.clone()
        }
    }

    /// The secret values of the environment and of the command.
    pub fn secrets(&self) -> Secrets {
        let environment = self.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        Secrets::from_words(&[self.command.as_slice(), &self.extra_args].concat(), environment)
    }

    /// Whether servers simulate acceptance because the user's own settings say so.
    pub fn simulates_acceptance(&self) -> bool {
        // SGLang simulates nothing with a length that is not above 0.
        let is_length = |text: &str| text.trim().parse().map_or(true, |length: f64| length > 0.0);
        let of_sglang = |word: &String| word.strip_prefix(SIMULATED_LENGTH)?.strip_prefix('=').map(is_length);
        let is_ours =
            |word: &String| word.split('=').next().is_some_and(|name| name.replace('_', "-") == SIMULATED_FLAG);
        let method = self.speculative_config.get("rejection_sample_method").and_then(serde_json::Value::as_str);
        let words = || self.command.iter().chain(&self.extra_args);
        self.env.get(SIMULATED_LENGTH).is_some_and(|length| is_length(length))
            || words().any(|word| of_sglang(word).unwrap_or_default() || is_ours(word))
            || method.is_some_and(|method| method == "synthetic")
    }

    /// Number of GPUs of one server according to its arguments (default: 1).
    pub fn gpus(&self) -> usize {
        let engine = self.kind.engine();
        let words = || self.command.iter().chain(&self.extra_args);
        let of = |name: &str| {
            let pairs = words().zip(words().skip(1).map(String::as_str).chain([""]));
            let values = pairs.filter_map(|(word, next)| {
                let (flag, value) = word.split_once('=').unwrap_or((word, next));
                (engine.canonical_flag(flag)? == name).then_some(value)
            });
            values.last().and_then(|value| value.parse::<usize>().ok()).filter(|gpus| *gpus > 0).unwrap_or(1)
        };
        let [tensor, pipeline, data] = match engine {
            Engine::Vllm => ["tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size"],
            Engine::Sglang | Engine::Slime | Engine::Spectune => ["tp-size", "pp-size", "dp-size"],
        };
        // SGLang's DP attention uses the GPUs of tensor parallelism; its plain data parallelism and
        // vLLM's need more GPUs.
        let shares = words().any(|word| engine.canonical_flag(word) == Some("enable-dp-attention"));
        of(tensor).saturating_mul(of(pipeline)).saturating_mul(if shares { 1 } else { of(data) })
    }

    pub(super) fn check(&self) -> Result<(), FieldError> {
        let is_set = !self.command.is_empty() || !self.extra_args.is_empty() || !self.env.is_empty();
        match (self.is_in_process(), self.command.is_empty(), &self.url) {
            (true, ..) if is_set => {
                let reason = "kind \"spectune\" runs in this process: remove command, extra_args and env, or set \
                              kind = \"sglang\" or \"vllm\"";
                return Err(FieldError::at(&["system"], reason));
            }
            (false, true, None) => {
                let reason = "give command, which starts a server, or url, where one is running";
                return Err(FieldError::at(&["system"], reason));
            }
            (false, false, Some(_)) => {
                return Err(FieldError::at(&["system", "url"], "command and url exclude each other: give one of them"));
            }
            (false, true, Some(_)) if !self.extra_args.is_empty() || !self.env.is_empty() => {
                let reason = "a server that is already running takes no extra_args and no env";
                return Err(FieldError::at(&["system", "url"], reason));
            }
            _ => {}
        }
        if !self.speculative_config.is_empty() && self.kind != SystemKind::Vllm {
            let reason = "only vLLM has --speculative-config: remove this key, or set kind = \"vllm\"";
            return Err(FieldError::at(&["system", "speculative_config"], reason));
        }
        let of_starts: [(&'static [&'static str], bool); 2] = [
            (&["system", "keep_prefix_cache"], self.keep_prefix_cache),
            (&["system", "address"], self.address.is_some()),
        ];
        if let Some((key, _)) = of_starts.into_iter().find(|(_, is_given)| *is_given && self.command.is_empty()) {
            return Err(FieldError::at(key, format!("{} has no effect without command", key[1])));
        }
        if self.address.as_ref().is_some_and(|address| !is_server_address(address)) {
            return Err(FieldError::at(&["system", "address"], "expected an address such as \"http://node-1:30000\""));
        }
        if self.url.is_none() && self.flush {
            return Err(FieldError::at(
                &["system", "flush"],
                "flush has no effect without url: servers that a sweep starts have no prefix cache",
            ));
        }
        if self.url.is_none() && self.api_key_env.is_some() {
            return Err(FieldError::at(&["system", "api_key_env"], "api_key_env has no effect without url"));
        }
        if self.url.as_ref().is_some_and(|url| !url.starts_with("http://") && !url.starts_with("https://")) {
            return Err(FieldError::at(&["system", "url"], "expected a URL such as \"http://127.0.0.1:30000\""));
        }
        if let Some(name) = self.env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
            return Err(FieldError::at(
                &["system", "env"],
                format!("{name:?} is not the name of an environment variable"),
            ));
        }
        if !(self.start_timeout_s > 0.0 && self.start_timeout_s <= LONGEST_START_S) {
            let reason = format!("expected a number above 0 and at most {LONGEST_START_S}");
            return Err(FieldError::at(&["system", "start_timeout_s"], reason));
        }
        Ok(())
    }
}

impl Default for SystemSettings {
    fn default() -> Self {
        Self {
            kind: SystemKind::Spectune,
            command: Vec::new(),
            extra_args: Vec::new(),
            env: BTreeMap::new(),
            speculative_config: BTreeMap::new(),
            keep_prefix_cache: false,
            address: None,
            url: None,
            api_key_env: None,
            flush: false,
            start_timeout_s: 900.0,
        }
    }
}

impl SystemKind {
    /// The engine whose flags its servers take.
    pub fn engine(self) -> Engine {
        match self {
            Self::Spectune => Engine::Spectune,
            Self::Sglang => Engine::Sglang,
            Self::Vllm => Engine::Vllm,
        }
    }

    /// The engine's name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spectune => "spectune",
            Self::Sglang => "sglang",
            Self::Vllm => "vllm",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acceptance_is_simulated_by_a_variable_a_flag_or_a_method() {
        let check = |env: &[(&str, &str)], arguments: &str, expected: bool| {
            let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let extra_args = arguments.split_whitespace().map(str::to_owned).collect();
            let settings = SystemSettings { env, extra_args, ..SystemSettings::default() };
            assert_eq!(settings.simulates_acceptance(), expected, "{arguments}");
        };
        check(&[(SIMULATED_LENGTH, "2.5")], "", true);
        check(&[(SIMULATED_LENGTH, "-1")], "", false);
        check(&[], "--simulate-accept-length 3", true);
        check(&[], "--simulate-accept-length=3 --tp 2", true);
        check(&[], "-e SGLANG_SIMULATE_ACC_LEN=3", true);
        check(&[("SGLANG_SIMULATE_ACC_METHOD", "match-expected")], "--tp 2", false);
    }

    #[test]
    fn the_gpus_of_a_server_are_those_of_its_arguments() {
        let check = |kind: SystemKind, arguments: &str, gpus: usize| {
            let extra_args = arguments.split_whitespace().map(str::to_owned).collect();
            let settings = SystemSettings { kind, extra_args, ..SystemSettings::default() };
            assert_eq!(settings.gpus(), gpus, "{arguments}");
        };
        check(SystemKind::Sglang, "", 1);
        check(SystemKind::Sglang, "--trust-remote-code --tp-size 2", 2);
        check(SystemKind::Sglang, "--tp=4 --pp-size 2", 8);
        check(SystemKind::Sglang, "--tensor-parallel-size 2 --data-parallel-size 2", 4);
        check(SystemKind::Sglang, "--tp 8 --dp 8 --enable-dp-attention", 8);
        check(SystemKind::Sglang, "--tp 2 --tp 4", 4);
        check(SystemKind::Sglang, "--tp many", 1);
        check(SystemKind::Sglang, "--tp", 1);
        check(SystemKind::Vllm, "-tp 2 --pipeline_parallel_size=2 -dp 2", 8);
    }
}
