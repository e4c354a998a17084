//! What the starts of a launch need of a GPU: an estimate from the sizes of its models, and the
//! batches that graphs are captured for.

use std::collections::BTreeSet;

use facts::{HubCache, Sources};
use launch::{
    Launch,
    resolve::{Resolved, readable, resolve, version_of},
};
use schemas::{
    algorithm::parse_algorithm,
    engines::{Engine, NEWEST_SGLANG},
    flags::Key,
    model::{ModelFacts, TokenBytes, element_bytes, normal_dtype},
    sweep::SweepFile,
};
use tuner::system::server::Host;

/// Sizes of the models of a launch, on one GPU.
pub struct LaunchNeeds {
    /// Whether the launch runs on the processor, in the memory of its host.
    on_processor: bool,
    /// Number of GPUs that the weights are split over.
    gpus: usize,
    /// The name of the target, for messages.
    target: String,
    /// Bytes of the target's weights; `None` if they are not known.
    weights: Option<u64>,
    /// Bytes of the draft's weights; 0 if it is part of the target.
    draft: Option<u64>,
    /// One token in the KV cache of the target.
    kv_token: Option<TokenBytes>,
    /// In the draft's own, if there is one and it is known.
    draft_kv_token: Option<TokenBytes>,
    /// The most tokens that run together, and the requests and tokens of each that make them;
    /// `None` if the lengths of the prompts are not known.
    tokens: Option<(usize, usize)>,
    /// Batch sizes with a CUDA graph; `None` if they are not known.
    captured: Option<Vec<usize>>,
    /// The batches that are measured.
    batches: Vec<usize>,
}

impl LaunchNeeds {
    /// Of a launch that is measured by this sweep, whose models are folders if they are on this
    /// machine.
    pub fn from_launch(launch: &Launch, file: &SweepFile) -> Self {
        let target = facts_of(&file.models.target);
        let draft = facts_of(&file.models.draft);
        let resolved = resolved(launch, target.as_ref(), draft.as_ref());
        let (tensor, pipeline) = parallelism(launch, resolved.as_ref());
        let gpus = tensor.saturating_mul(pipeline);
        let dtype = dtype(&file.models.dtype, target.as_ref());
        let share = |facts: &ModelFacts| Some(facts.loaded_bytes(dtype)? / u64::try_from(gpus).ok()?);
        let kv_token = |facts: Option<&ModelFacts>| facts?.config.token_bytes(element_bytes(dtype)?, tensor);
        Self {
            on_processor: is_on_processor(launch),
            gpus,
            target: file.models.target.clone(),
            weights: target.as_ref().and_then(share),
            draft: match file.models.draft.is_empty() {
                true => Some(0),
                false => draft.as_ref().and_then(share),
            },
            kv_token: kv_token(target.as_ref()),
            draft_kv_token: kv_token(draft.as_ref()),
            tokens: file.workload.random.as_ref().map(|random| {
                let requests = file.batch_sizes().into_iter().max().unwrap_or(1);
                (requests, random.input_length.saturating_add(file.workload.output_length))
            }),
            captured: match is_on_processor(launch) {
                true => Some(Vec::new()),
                false => resolved.and_then(|resolved| resolved.capture_sizes).map(|sizes| sizes.value),
            },
            batches: file.batch_sizes(),
        }
    }

    /// The memory of each GPU, or of the host of a launch on the processor, in one line.
    pub fn memory(&self) -> String {
        let which = if self.on_processor { "memory of the host" } else { "GPU memory" };
        let Some(weights) = self.weights else {
            return format!(
                "{which}: not estimated, since the sizes of {} are not known here; give its folder with --model-path",
                self.target
            );
        };
        let mut parts = vec![format!("{} for the target's weights", readable(weights))];
        parts.push(match self.draft {
            Some(0) => "none for the draft, which is part of the target".into(),
            Some(draft) => format!("{} for the draft's", readable(draft)),
            None => "an unknown size for the draft's".into(),
        });
        let cache = |target: TokenBytes| {
            let of = |tokens: u64| {
                let draft = self.draft_kv_token.map_or(0, |draft| draft.sequence_bytes(tokens));
                target.sequence_bytes(tokens).saturating_add(draft)
            };
            let whose = if self.draft_kv_token.is_some() { "KV caches of target and draft" } else { "KV cache" };
            let wide = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
            match self.tokens {
                Some((requests, each)) => {
                    let all = readable(of(wide(each)).saturating_mul(wide(requests)));
                    format!("{all} for the {whose} of {requests} x {each} tokens")
                }
                None if target.windowed > 0 => {
                    format!("{} for each token of the {whose} beyond its windows", readable(target.full))
                }
                None => format!("{} for each token of the {whose}", readable(of(1))),
            }
        };
        parts.extend(self.kv_token.map(cache));
        if self.on_processor {
            return format!("{which} (estimated): at least {}; activations come on top", parts.join(", "));
        }
        let each = if self.gpus == 1 { "1 GPU".to_owned() } else { format!("each of {} GPUs", self.gpus) };
        format!(
            "{which} (estimated): on {each} at least {}; activations and graphs come on top, and a server takes the \
             whole share that its memory fraction names",
            parts.join(", ")
        )
    }

    /// The captured batch sizes with the measured ones that have no graph of their own; `None` if
    /// every measured batch has one, or if it is not known which have.
    pub fn other_captures(&self) -> Option<Vec<usize>> {
        let captured = self.captured.as_ref().filter(|captured| !captured.is_empty())?;
        let all: BTreeSet<usize> = captured.iter().chain(&self.batches).copied().collect();
        (all.len() > captured.len()).then(|| all.into_iter().collect())
    }

    /// Which capture sizes are tried, or why none are.
    pub fn capture_sizes(&self, file: &SweepFile) -> String {
        let Some(captured) = &self.captured else {
            return match file.engine.capture_sizes.is_empty() {
                true => "every start captures what the launch or its engine says for that chain or tree".into(),
                false => "the launch's batch sizes, in tokens of each chain".into(),
            };
        };
        let alone = |batch: &usize| match captured.iter().filter(|size| *size > batch).min() {
            Some(size) => format!("{batch} in the graph for {size}"),
            None => format!("{batch} without a graph"),
        };
        let padded: Vec<String> = self.batches.iter().filter(|batch| !captured.contains(batch)).map(alone).collect();
        match (captured.is_empty(), padded.is_empty()) {
            (true, _) => "the launch captures no graphs, so none are varied".into(),
            (_, true) => "every measured batch has a graph of its own size, so other lists only cost memory".into(),
            (_, false) => format!(
                "the launch's list, which runs {}; and, with the fastest shape, the same list with graphs for them",
                padded.join(", ")
            ),
        }
    }
}

/// What is known of a model: from its folder, else from the local Hugging Face cache, else the
/// published facts.
pub fn facts_of(name: &str) -> Option<ModelFacts> {
    if name.is_empty() {
        return None;
    }
    Sources::new(HubCache::from_environment(), None).find_or_published(name, name).facts
}

/// That a folder holds a draft of another kind than an algorithm runs; `None` if it does not, or
/// that is not known here.
pub fn other_head(path: &str, algorithm: &str) -> Option<String> {
    let (_, own) = facts_of(path)?.draft_head()?.algorithm()?;
    let family =
        |name: &str| parse_algorithm(&name.to_ascii_uppercase(), NEWEST_SGLANG).map(|(algorithm, _)| algorithm);
    let differs = family(own).zip(family(algorithm)).is_some_and(|(own, given)| own != given);
    differs.then(|| {
        format!("the tensors of {path} are those of {own}, which --algorithm {algorithm} does not run: leave --algorithm out")
    })
}

/// Whether the servers run on the processor, where no graphs are captured: the launch says so, or
/// it is spectune's own server on a host without a GPU.
fn is_on_processor(launch: &Launch) -> bool {
    match launch.text(Key::Device) {
        Some(device) if device.value != "auto" => device.value.starts_with("cpu"),
        _ => launch.engine == Engine::Spectune && launch.image.is_none() && Host::this().gpus.is_empty(),
    }
}

/// What the engine makes of a launch; `None` for vLLM, whose launches are not resolved.
fn resolved(launch: &Launch, target: Option<&ModelFacts>, draft: Option<&ModelFacts>) -> Option<Resolved> {
    let (version, is_stated) = version_of(launch, None);
    (launch.engine != Engine::Vllm).then(|| resolve(launch, version, is_stated, target, draft, None))
}

/// The degrees of tensor and pipeline parallelism.
fn parallelism(launch: &Launch, resolved: Option<&Resolved>) -> (usize, usize) {
    let tensor = match resolved {
        Some(resolved) => resolved.tp_size.as_ref().map_or(1, |size| size.value),
        None => ranks(launch, Key::TpSize, "tensor-parallel-size"),
    };
    (tensor, ranks(launch, Key::PpSize, "pipeline-parallel-size"))
}

/// A degree of parallelism, which is 1 if it is not given. vLLM has other names for it.
fn ranks(launch: &Launch, key: Key, of_vllm: &str) -> usize {
    let stated = match launch.engine {
        Engine::Vllm => launch.argument(of_vllm).and_then(|argument| argument.known()?.parse().ok()),
        Engine::Sglang | Engine::Slime | Engine::Spectune => launch.count(key).map(|count| count.value),
    };
    stated.unwrap_or(1).max(1)
}

/// The type that weights are loaded in.
fn dtype(stated: &str, target: Option<&ModelFacts>) -> &'static str {
    let own = || target.and_then(|target| target.config.weights_dtype());
    normal_dtype(stated).or_else(own).unwrap_or("bfloat16")
}

#[cfg(test)]
mod tests {
    use schemas::text::Source;

    use super::*;

    fn needs(weights: Option<u64>, captured: Option<Vec<usize>>) -> LaunchNeeds {
        LaunchNeeds {
            on_processor: false,
            gpus: 2,
            target: "org/model".into(),
            weights,
            draft: Some(1 << 29),
            kv_token: Some(TokenBytes { full: 1 << 17, windowed: 0, window: 0 }),
            draft_kv_token: None,
            tokens: Some((8, 1024)),
            captured,
            batches: vec![1, 5],
        }
    }

    #[test]
    fn memory_is_an_estimate_or_said_to_be_unknown() {
        let text = needs(Some(8 << 30), None).memory();
        for part in
            ["estimated", "each of 2 GPUs", "8.0 GiB", "512.0 MiB", "1.0 GiB for the KV cache of 8 x 1024 tokens"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(needs(None, None).memory().contains("org/model are not known"));
        for weights in [None, Some(8 << 30)] {
            let text = LaunchNeeds { on_processor: true, ..needs(weights, None) }.memory();
            assert!(text.starts_with("memory of the host") && !text.contains("GPU"), "{text}");
        }
        // Half of the layers keep 128 of the 1,024 tokens.
        let half = TokenBytes { full: 1 << 16, windowed: 1 << 16, window: 128 };
        let text = LaunchNeeds { kv_token: Some(half), ..needs(Some(8 << 30), None) }.memory();
        assert!(text.contains("576.0 MiB for the KV cache of 8 x 1024 tokens"), "{text}");
    }

    #[test]
    fn a_whole_model_as_the_draft_needs_its_weights_and_its_own_cache() {
        let text = "[models]\ntarget='meta-llama/Llama-3.1-8B-Instruct'\ndraft='meta-llama/Llama-3.2-1B-Instruct'\n\
                    algorithm='STANDALONE'\n[workload]\nrandom={input_length=924}\noutput_length=100\n[batch]\nsizes=[8]\n";
        let file = SweepFile::read(&Source::new("s", text)).expect("a sweep file");
        let source = Source::new("run.sh", "sglang serve --model-path meta-llama/Llama-3.1-8B-Instruct");
        let parsed = launch::parse(&source, &launch::Options::default());
        let needs = LaunchNeeds::from_launch(parsed.launches.first().expect("a launch"), &file);
        // 128 KiB of the target's 32 layers of 8 heads of 128, and 32 KiB of 16 of 8 of 64.
        let full = |token: Option<TokenBytes>| token.map(|token| token.full);
        assert_eq!((full(needs.kv_token), full(needs.draft_kv_token)), (Some(1 << 17), Some(1 << 15)));
        let text = needs.memory();
        for part in
            ["15.0 GiB for the target's", "2.3 GiB for the draft's", "1.2 GiB for the KV caches of target and draft"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn no_graphs_are_captured_on_the_processor() {
        let text = "[models]\ntarget='t'\ndraft='d'\nalgorithm='EAGLE3'\n[workload]\nrandom={input_length=8}\n[batch]\nsizes=[5]\n";
        let file = SweepFile::read(&Source::new("s", text)).expect("a sweep file");
        let captures = |command: &str| {
            let source = Source::new("run.sh", command);
            let parsed = launch::parse(&source, &launch::Options::default());
            LaunchNeeds::from_launch(parsed.launches.first().expect("a launch"), &file).other_captures().is_some()
        };
        let flags = "--model-path m --cuda-graph-bs 1 2 4";
        assert!(!captures(&format!("sglang serve --device cpu {flags}")));
        assert!(captures(&format!("sglang serve {flags}")));
    }

    #[test]
    fn gpus_of_a_launch_are_those_of_its_engine() {
        let degrees = |text: &str| {
            let parsed = launch::parse(&Source::new("run.sh", text), &launch::Options::default());
            let launch = parsed.launches.first().expect("a launch");
            parallelism(launch, resolved(launch, None, None).as_ref())
        };
        assert_eq!(degrees("SGLANG_ARGS=( --rollout-num-gpus-per-engine 8 --sglang-pp-size 2 )"), (4, 2));
        assert_eq!(degrees("SGLANG_ARGS=( --sglang-mem-fraction-static 0.7 )"), (1, 1));
        assert_eq!(degrees("python3 -m sglang.launch_server --model-path m --tp 4"), (4, 1));
        assert_eq!(degrees("vllm serve m -tp 2 -pp 2"), (2, 2));
    }

    #[test]
    fn padded_batches_are_named() {
        let text = "[models]\ntarget='t'\ndraft='d'\nalgorithm='EAGLE3'\n[workload]\nrandom={input_length=8}\n";
        let file = SweepFile::read(&Source::new("s", text)).expect("a sweep file");
        let line = |captured: Option<Vec<usize>>| needs(None, captured).capture_sizes(&file);
        assert!(line(Some(vec![1, 2, 4, 8])).contains("runs 5 in the graph for 8; and"));
        assert!(line(Some(vec![1])).contains("5 without a graph"));
        assert!(line(Some(vec![1, 5])).contains("of its own size"));
        assert!(line(None).contains("every start captures"));
        let other = |captured: Option<Vec<usize>>| needs(None, captured).other_captures();
        assert_eq!(other(Some(vec![1, 2, 4, 8])), Some(vec![1, 2, 4, 5, 8]));
        assert_eq!(other(Some(vec![1, 5])), None);
        assert_eq!(other(Some(vec![])), None, "graphs are off");
        assert_eq!(other(None), None);
    }
}
