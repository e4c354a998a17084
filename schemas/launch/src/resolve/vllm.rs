//! What vLLM decides of a speculative launch before it runs: the draft tokens, the batch, and the
//! model runner.

use schemas::{engines::Engine, flags::Key};
use serde_json::Value as Json;

use super::{Decided, Given, Origin};
use crate::{
    VllmSpeculation,
    vllm::runner::{OLDEST_WITH_RUNNERS, RUNNER_VARIABLE},
};

const SOURCE: &str = "vllm config/speculative.py";

/// The configuration of a vLLM launch, as far as it is decided before run time. `None` means that a
/// value cannot be derived from the inputs.
#[derive(Clone, Debug, Default)]
pub struct VllmResolved {
    /// The method; `off` without speculation.
    pub method: Option<Decided<String>>,
    /// Draft tokens of a round, K.
    pub num_speculative_tokens: Option<Decided<usize>>,
    /// Rows that the target verifies for each request in a round: K and one more.
    pub verified_rows: Option<Decided<usize>>,
    /// Maximum number of requests in a batch. The default depends on the GPU and the entry point,
    /// and is not derived.
    pub max_num_seqs: Option<Decided<usize>>,
    /// `V1` or `V2`.
    pub runner: Option<Decided<String>>,
    /// GPUs that share each layer.
    pub tensor_parallel_size: Option<Decided<usize>>,
}

/// The configuration of a launch, if it is one of vLLM.
pub(super) fn resolve(given: &Given<'_>) -> Option<VllmResolved> {
    let launch = given.launch;
    if launch.engine != Engine::Vllm {
        return None;
    }
    let config = launch.vllm_speculation();
    let is_off = config.is_none() && launch.is_complete() && !launch.has_vllm_speculation();
    let method = match &config {
        Some(config) => method(config),
        None => is_off.then(|| Decided::default("off".to_owned(), "no --speculative-config", SOURCE)),
    };
    let tokens = config.as_ref().and_then(|config| tokens(given, config));
    let verified_rows = match &tokens {
        Some(tokens) => Some(Decided::default(tokens.value.checked_add(1)?, "the draft tokens and one more", SOURCE)),
        None => is_off.then(|| Decided::default(1, "no drafts", SOURCE)),
    };
    Some(VllmResolved {
        method,
        num_speculative_tokens: tokens,
        verified_rows,
        max_num_seqs: max_num_seqs(given),
        runner: config.as_ref().and_then(|config| runner(given, config)),
        tensor_parallel_size: match launch.has(Key::TpSize) {
            true => given.written(Key::TpSize),
            false => launch
                .is_complete()
                .then(|| Decided::default(1, "no --tensor-parallel-size", "vllm config/parallel.py")),
        },
    })
}

fn method(config: &VllmSpeculation) -> Option<Decided<String>> {
    let value = config.method_in_use()?.to_owned();
    Some(match config.keys.get("method") {
        Some(key) => Decided { value, origin: Origin::Written(key.span) },
        None => Decided::default(value, "inferred from the draft's name", SOURCE),
    })
}

fn tokens(given: &Given<'_>, config: &VllmSpeculation) -> Option<Decided<usize>> {
    if config.gives_tokens {
        let value = usize::try_from(config.num_speculative_tokens?).ok()?;
        let span = config.keys.get("num_speculative_tokens").map_or(config.span, |key| key.span);
        return Some(Decided { value, origin: Origin::Written(span) });
    }
    let method = config.method_in_use()?;
    if method == "dspark" {
        let draft = given.draft.filter(|_| config.may_give("model")).map(|draft| &draft.config);
        let own = draft.and_then(|draft| draft.block_size.or(draft.dspark_block_size));
        let bundled = || given.target.filter(|_| !config.may_give("model"))?.config.dspark_block_size;
        return Some(Decided::default(own.or_else(bundled)?, "the block of the draft", SOURCE));
    }
    let layers =
        given.target.filter(|_| method == "mtp" || method.ends_with("_mtp"))?.config.num_nextn_predict_layers?;
    Some(Decided::default(layers, "the number of the checkpoint's MTP layers (n_predict)", SOURCE))
}

fn max_num_seqs(given: &Given<'_>) -> Option<Decided<usize>> {
    let flag = given.launch.argument("max-num-seqs")?;
    let value = flag.values.first()?.value.known()?.parse().ok()?;
    Some(Decided { value, origin: Origin::Written(flag.span) })
}

fn runner(given: &Given<'_>, config: &VllmSpeculation) -> Option<Decided<String>> {
    let launch = given.launch;
    let source = "vllm config/vllm.py";
    if let Some(chosen) = launch.variable(RUNNER_VARIABLE) {
        let value = match chosen.value.trim() {
            "1" => "V2",
            "0" => "V1",
            _ => return None,
        };
        return Some(Decided { value: value.to_owned(), origin: Origin::Written(chosen.span) });
    }
    if !launch.lacks_variable(RUNNER_VARIABLE) || given.version < OLDEST_WITH_RUNNERS {
        return None;
    }
    let because = |runner: &str, other: &str, words: &str| {
        Decided::default(runner.to_owned(), format!("{other} does not have {words}"), source)
    };
    match (launch.lacked_by_v2(config, given.version), launch.lacked_by_v1(config, given.version)) {
        (Some(lack), None) => Some(because("V1", "V2", &lack.words)),
        (None, Some(lack)) => Some(because("V2", "V1", &lack.words)),
        // Otherwise vLLM looks at the model's class; what both lack is an error.
        _ => None,
    }
}

impl VllmResolved {
    /// The values by name.
    pub(super) fn values(&self) -> [(&'static str, Option<(Json, Origin)>); 6] {
        let number = |decided: &Option<Decided<usize>>| {
            decided.as_ref().map(|decided| (Json::from(decided.value), decided.origin.clone()))
        };
        let word = |decided: &Option<Decided<String>>| {
            decided.as_ref().map(|decided| (Json::from(decided.value.as_str()), decided.origin.clone()))
        };
        [
            ("method", word(&self.method)),
            ("num_speculative_tokens", number(&self.num_speculative_tokens)),
            ("verified_rows_per_request", number(&self.verified_rows)),
            ("max_num_seqs", number(&self.max_num_seqs)),
            ("model_runner", word(&self.runner)),
            ("tensor_parallel_size", number(&self.tensor_parallel_size)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use schemas::{
        model::{ModelConfig, ModelFacts},
        text::Source,
        version::EngineVersion,
    };

    use crate::{Options, parse, resolve::resolve};

    /// The table of a launch of vLLM, with an MTP layer in the target.
    fn table(text: &str, version: EngineVersion) -> String {
        let source = Source::new("run.sh", text);
        let parsed = parse(&source, &Options::default());
        let launch = parsed.launches.first().expect("a launch");
        let config = ModelConfig::parse("{\"num_nextn_predict_layers\": 1}").expect("an object");
        let target = ModelFacts { config, ..ModelFacts::default() };
        resolve(launch, version, true, Some(&target), None, None).table(&source)
    }

    #[track_caller]
    fn check(text: &str, rows: &[&str]) {
        check_in(EngineVersion::new(0, 29, 0), text, rows);
    }

    #[track_caller]
    fn check_in(version: EngineVersion, text: &str, rows: &[&str]) {
        let table = table(text, version);
        let plain = table.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(plain.starts_with(&format!("resolved for vllm {version}")), "{table}");
        for row in rows {
            assert!(plain.contains(row), "{row} in\n{table}");
        }
    }

    #[test]
    fn what_is_decided_before_run_time_is_stated() {
        check(
            "vllm serve m --max-num-seqs 64 -tp 2 --speculative-config '{\"method\": \"mtp\", \"num_speculative_tokens\": 3}'",
            &[
                "method mtp written at 1:",
                "num_speculative_tokens 3 written at 1:",
                "verified_rows_per_request 4 default",
                "max_num_seqs 64 written at 1:",
                "model_runner ? not known",
                "tensor_parallel_size 2 written",
            ],
        );
        check(
            "vllm serve m --speculative-config '{\"method\": \"mtp\"}'",
            &["num_speculative_tokens 1 default: the number"],
        );
        check("vllm serve m", &["method off default", "verified_rows_per_request 1", "max_num_seqs ? not known"]);
        check("vllm serve m $EXTRA_ARGS", &["method ? not known", "tensor_parallel_size ? not known"]);
    }

    #[test]
    fn a_runner_is_stated_where_the_other_one_lacks_something() {
        let with = |method: &str| {
            format!(
                "vllm serve m --speculative-config '{{\"method\": \"{method}\", \"model\": \"d\", \"num_speculative_tokens\": 3}}'"
            )
        };
        check(&with("suffix"), &["model_runner V1 default: V2 does not have"]);
        check(&with("dspark"), &["model_runner V2 default: V1 does not have"]);
        let chosen = format!("VLLM_USE_V2_MODEL_RUNNER=0 {}", with("eagle3"));
        check(&chosen, &["model_runner V1 written at 1:"]);
        // Flags decide too.
        let ranks = format!("{} -pcp 2", with("eagle3"));
        check(&ranks, &["model_runner V2 default: V1 does not have prefill context parallel"]);
        let stages = format!("{} -pp 2 --async-scheduling", with("eagle3"));
        let newer = EngineVersion::new(0, 31, 0);
        let lack = "V1 does not have pipeline parallelism with async scheduling";
        check_in(newer, &stages, &[&format!("model_runner V2 default: {lack}")]);
        check_in(newer, &stages.replace("--async", "--no-async"), &["model_runner ? not known"]);
        let external = format!("{} -pp 2 --distributed-executor-backend external_launcher", with("mtp"));
        check(&external, &["model_runner V1 default: V2 does not have pipeline parallelism with external_launcher"]);
        check(&external.replace("-pp 2", "-pp 1"), &["model_runner ? not known"]);
    }
}
