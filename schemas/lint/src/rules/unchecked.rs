//! The rules that could not be checked in a launch because a fact is missing, such as the draft's
//! config.json.
//!
//! The pages say which facts a rule needs: those that all of its `bad` examples have in blocks
//! beside the launch. A rule whose examples all name another algorithm than the launch does not
//! concern it.

use std::{fmt, sync::OnceLock};

use launch::Launch;
use schemas::{engines::Engine, flags::Key, model::ModelFacts};

use super::{
    Context, LintRule, RULES, Selection,
    page::{BlockKind, PageBlock, RulePage},
};

/// A fact that a launch does not contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NeededFact {
    /// config.json of the target.
    TargetConfig,
    /// Names and shapes of the target's tensors.
    TargetTensors,
    /// tokenizer.json of the target.
    TargetTokenizer,
    /// generation_config.json of the target.
    TargetGeneration,
    /// config.json of the draft.
    DraftConfig,
    /// Names and shapes of the draft's tensors.
    DraftTensors,
    /// tokenizer.json of the draft.
    DraftTokenizer,
    /// Memory of one GPU.
    GpuMemory,
    /// The number of requests that run together.
    Concurrency,
}

/// A rule that could not be checked in a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unchecked {
    /// The rule's code.
    pub code: &'static str,
    /// The rule's name.
    pub name: &'static str,
    /// What is missing.
    pub lacks: Vec<NeededFact>,
}

impl NeededFact {
    /// What it is.
    pub fn words(self) -> &'static str {
        match self {
            Self::TargetConfig => "the target's config.json",
            Self::TargetTensors => "the target's tensor headers",
            Self::TargetTokenizer => "the target's tokenizer.json",
            Self::TargetGeneration => "the target's generation_config.json",
            Self::DraftConfig => "the draft's config.json",
            Self::DraftTensors => "the draft's tensor headers",
            Self::DraftTokenizer => "the draft's tokenizer.json",
            Self::GpuMemory => "the GPU's memory",
            Self::Concurrency => "the expected number of requests",
        }
    }

    /// How to give it.
    pub fn advice(self) -> &'static str {
        match self {
            Self::TargetConfig | Self::TargetTensors | Self::TargetTokenizer | Self::TargetGeneration => {
                "give --hub or --model-path DIR"
            }
            Self::DraftConfig | Self::DraftTensors | Self::DraftTokenizer => {
                "give --hub or --speculative-draft-model-path DIR"
            }
            Self::GpuMemory => "give --gpu-memory GPU",
            Self::Concurrency => "give --expected-concurrency N",
        }
    }

    fn is_of_draft(self) -> bool {
        matches!(self, Self::DraftConfig | Self::DraftTensors | Self::DraftTokenizer)
    }

    fn is_known(self, context: &Context<'_>) -> bool {
        let of = |facts: Option<&ModelFacts>, has: fn(&ModelFacts) -> bool| facts.is_some_and(has);
        match self {
            Self::TargetConfig => of(context.target, |facts| !facts.by_name && !facts.partial),
            Self::TargetTensors => of(context.target, |facts| facts.tensors.is_some()),
            Self::TargetTokenizer => of(context.target, |facts| facts.tokenizer.is_some()),
            Self::TargetGeneration => of(context.target, |facts| facts.generation.is_some()),
            Self::DraftConfig => of(context.draft, |facts| !facts.by_name && !facts.partial),
            Self::DraftTensors => of(context.draft, |facts| facts.tensors.is_some()),
            Self::DraftTokenizer => of(context.draft, |facts| facts.tokenizer.is_some()),
            Self::GpuMemory => context.gpu_memory.is_some(),
            Self::Concurrency => context.expected_concurrency.is_some(),
        }
    }
}

impl fmt::Display for Unchecked {
    /// `SD142: needs the draft's config.json: give --hub or --speculative-draft-model-path DIR`
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.lacks.iter().map(|fact| fact.words()).collect();
        let mut advice: Vec<&str> = self.lacks.iter().map(|fact| fact.advice()).collect();
        advice.dedup();
        write!(formatter, "{} {}: needs {}: {}", self.code, self.name, words.join(" and "), advice.join(", and "))
    }
}

/// The facts that a rule needs, and the algorithms or methods of its examples.
struct RuleNeeds {
    facts: Vec<NeededFact>,
    algorithms: Vec<String>,
}

/// The selected rules that could not be checked in a launch, in the order of the codes.
pub(crate) fn unchecked(context: &Context<'_>, selection: &Selection) -> Vec<Unchecked> {
    let algorithm = algorithm_of(context);
    let names_draft = context.launch.has(Key::SpeculativeDraftModelPath) && context.loads_draft();
    let rules = RULES.iter().zip(needs()).filter(|(rule, _)| selection.admits_rule(rule, context.launch.engine));
    let lacking = |(rule, needs): (&LintRule, &RuleNeeds)| {
        let concerns =
            needs.algorithms.is_empty() || algorithm.as_ref().is_some_and(|own| needs.algorithms.contains(own));
        if !concerns || (!names_draft && needs.facts.iter().any(|fact| fact.is_of_draft())) {
            return None;
        }
        let lacks: Vec<NeededFact> = needs.facts.iter().copied().filter(|fact| !fact.is_known(context)).collect();
        (!lacks.is_empty()).then_some(Unchecked { code: rule.code, name: rule.name, lacks })
    };
    rules.filter_map(lacking).collect()
}

/// The needs of every rule, in the order of the rules.
fn needs() -> &'static [RuleNeeds] {
    static NEEDS: OnceLock<Vec<RuleNeeds>> = OnceLock::new();
    NEEDS.get_or_init(|| RULES.iter().map(|rule| needs_of(&rule.page())).collect())
}

fn needs_of(page: &RulePage) -> RuleNeeds {
    let mut examples: Vec<RuleNeeds> = Vec::new();
    let mut is_bad = false;
    for block in &page.blocks {
        let PageBlock::Fence { info, lines } = block else { continue };
        let Ok(kind) = info.parse::<BlockKind>() else { continue };
        if kind == BlockKind::Launch {
            is_bad = info.split_whitespace().any(|word| word == "bad");
            if is_bad {
                examples.push(RuleNeeds { facts: of_words(info), algorithms: named_in(&lines.join(" ")) });
            }
        } else if let Some(example) = examples.last_mut().filter(|_| is_bad) {
            example.facts.extend(of_block(kind));
        }
    }
    let Some(first) = examples.first() else { return RuleNeeds { facts: Vec::new(), algorithms: Vec::new() } };
    let is_in_all = |fact: &NeededFact| examples.iter().all(|example| example.facts.contains(fact));
    let mut facts: Vec<NeededFact> = first.facts.iter().copied().filter(is_in_all).collect();
    facts.sort_unstable();
    let any = examples.iter().any(|example| example.algorithms.is_empty());
    let algorithms =
        if any { Vec::new() } else { examples.into_iter().flat_map(|example| example.algorithms).collect() };
    RuleNeeds { facts, algorithms }
}

fn of_words(info: &str) -> Vec<NeededFact> {
    let facts = info.split_whitespace().filter_map(|word| match word.split_once(':')?.0 {
        "memory" => Some(NeededFact::GpuMemory),
        "concurrency" => Some(NeededFact::Concurrency),
        _ => None,
    });
    facts.collect()
}

fn of_block(kind: BlockKind) -> Option<NeededFact> {
    Some(match kind {
        BlockKind::Launch => return None,
        BlockKind::Target => NeededFact::TargetConfig,
        BlockKind::TargetTensors => NeededFact::TargetTensors,
        BlockKind::TargetTokenizer => NeededFact::TargetTokenizer,
        BlockKind::TargetGeneration => NeededFact::TargetGeneration,
        BlockKind::Draft => NeededFact::DraftConfig,
        BlockKind::DraftTensors => NeededFact::DraftTensors,
        BlockKind::DraftTokenizer => NeededFact::DraftTokenizer,
    })
}

/// The algorithm or method that a launch of a page names.
fn named_in(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split(|letter: char| letter.is_whitespace() || "\"',:{}=".contains(letter)).collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let names = words.windows(2).filter(|pair| pair[0].ends_with("speculative-algorithm") || pair[0] == "method");
    names.map(|pair| if pair[1] == "NEXTN" { "EAGLE" } else { pair[1] }.to_owned()).collect()
}

fn algorithm_of(context: &Context<'_>) -> Option<String> {
    let launch: &Launch = context.launch;
    if launch.engine == Engine::Vllm {
        return launch.vllm_speculation()?.method;
    }
    context.algorithm().map(|algorithm| algorithm.name().to_owned())
}

#[cfg(test)]
mod tests {
    use schemas::text::Source;

    use super::*;
    use crate::report::{ReportOptions, report};

    fn for_code(code: &str) -> &'static RuleNeeds {
        let at = RULES.iter().position(|rule| rule.code == code).expect("a rule");
        &needs()[at]
    }

    #[test]
    fn the_examples_say_what_a_rule_needs() {
        assert_eq!(for_code("SD142").facts, [NeededFact::TargetConfig, NeededFact::DraftConfig]);
        assert_eq!(for_code("SD142").algorithms, ["DFLASH"]);
        assert!(for_code("SD021").facts.is_empty());
        assert!(RULES.iter().zip(needs()).filter(|(_, needs)| !needs.facts.is_empty()).count() > 30);
    }

    #[test]
    fn a_rule_that_fired_was_checked() {
        let text =
            "vllm serve Qwen/Qwen3-8B --speculative-config '{\"method\": \"mtp\", \"num_speculative_tokens\": 2}'";
        let options = ReportOptions { unchecked: true, ..ReportOptions::default() };
        let source = Source::new("run.sh", text);
        let by_name = |launch: &Launch| {
            let (target, draft) = crate::published_models::facts_of(launch);
            (target.map(|target| ModelFacts { by_name: true, ..target }), draft)
        };
        let parsed = launch::parse(&source, &launch::Options::default());
        let report = report(&source, parsed, by_name, &options);
        assert!(report.findings.iter().any(|one| one.code == "VL21"), "{:?}", report.findings);
        assert!(report.unchecked[0].1.iter().all(|one| one.code != "VL21"), "{:?}", report.unchecked);
    }

    #[test]
    fn names_of_algorithms_are_read() {
        assert_eq!(named_in("sglang serve --speculative-algorithm NEXTN --tp 2"), ["EAGLE"]);
        assert_eq!(named_in("vllm serve m --speculative-config '{\"method\": \"mtp\", \"x\": 1}'"), ["mtp"]);
        assert!(named_in("sglang serve --model-path m").is_empty());
    }
}
