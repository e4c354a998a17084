//! Examples on the pages, run as tests.

use std::collections::BTreeMap;

use launch::{
    Launch, Options, parse,
    resolve::{resolve, version_of},
};
use schemas::{
    diagnostic::{Diagnostic, fix},
    model::{GenerationConfig, ModelConfig, ModelFacts, TensorHeader, TensorHeaders, TokenizerFacts},
    text::Source,
    version::EngineVersion,
};

use super::{
    Context, Hardware, LintRule, RulePage, Selection, lint,
    page::{BlockKind, PageBlock},
};

/// A launch of a page, with additional facts.
pub(crate) struct Example {
    pub bad: bool,
    pub also: Vec<String>,
    /// Whether it is of two engines that work together.
    is_pair: bool,
    source: Source,
    version: Option<EngineVersion>,
    concurrency: Option<usize>,
    memory: Option<u64>,
    target: Option<ModelFacts>,
    draft: Option<ModelFacts>,
}

impl Example {
    /// The examples of a page, in order.
    pub fn all_of(page: &RulePage) -> Vec<Self> {
        let mut examples: Vec<Self> = Vec::new();
        for block in &page.blocks {
            let PageBlock::Fence { info, lines } = block else { continue };
            let words: Vec<&str> = info.split_whitespace().skip(1).collect();
            match (info.parse(), examples.last_mut()) {
                (Ok(BlockKind::Launch), _) => examples.push(Self::new(&words, &lines.join("\n"))),
                (Ok(BlockKind::Target), Some(example)) => {
                    example.target = Some(facts("target", &words, &lines.join("\n")))
                }
                (Ok(BlockKind::Draft), Some(example)) => {
                    example.draft = Some(facts("draft", &words, &lines.join("\n")))
                }
                (Ok(BlockKind::TargetTensors), Some(example)) => {
                    example.target.as_mut().expect("a target before its tensors").tensors = Some(tensors(lines));
                }
                (Ok(BlockKind::TargetGeneration), Some(example)) => {
                    let generation = GenerationConfig::parse(&lines.join("\n")).expect("a generation_config.json");
                    example.target.as_mut().expect("a target before its sampling").generation = Some(generation);
                }
                (Ok(BlockKind::DraftTensors), Some(example)) => {
                    example.draft.as_mut().expect("a draft before its tensors").tensors = Some(tensors(lines));
                }
                (Ok(BlockKind::TargetTokenizer), Some(example)) => {
                    example.target.as_mut().expect("a target before its tokenizer").tokenizer = Some(tokenizer(lines));
                }
                (Ok(BlockKind::DraftTokenizer), Some(example)) => {
                    example.draft.as_mut().expect("a draft before its tokenizer").tokenizer = Some(tokenizer(lines));
                }
                _ => panic!("'{}' has the block '{info}', which is not an example", page.title),
            }
        }
        examples
    }

    fn new(words: &[&str], text: &str) -> Self {
        let value = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix(':'));
        let name = if words.contains(&"toml") { "launch.toml" } else { "launch.sh" };
        assert!(words.contains(&"bad") != words.contains(&"good"), "{words:?} is either bad or good");
        Self {
            bad: words.contains(&"bad"),
            also: value("also").map(|codes| codes.split(',').map(str::to_owned).collect()).unwrap_or_default(),
            is_pair: words.contains(&"pair"),
            source: Source::new(name, format!("{text}\n")),
            version: value("version").map(|version| version.parse().expect("a version")),
            concurrency: value("concurrency").map(|number| number.parse().expect("a number")),
            memory: value("memory").map(|number| number.parse().expect("a number")),
            target: None,
            draft: None,
        }
    }

    /// The findings of all rules in it.
    pub fn findings(&self) -> Vec<Diagnostic> {
        self.findings_in(&self.source)
    }

    /// The findings of all rules in its text after the rule's fixes are applied; `None` if it
    /// offers none.
    pub fn findings_when_fixed(&self, rule: &LintRule) -> Option<Vec<Diagnostic>> {
        let own: Vec<Diagnostic> = self.findings().into_iter().filter(|found| found.code == rule.code).collect();
        if own.iter().all(|found| found.fix.is_none()) {
            return None;
        }
        let fixed = fix::apply(&self.source, &own, true);
        assert!(!fixed.applied.is_empty(), "{}: its fix cannot be applied", rule.code);
        Some(self.findings_in(&Source::new(self.source.name(), fixed.text)))
    }

    fn findings_in(&self, source: &Source) -> Vec<Diagnostic> {
        let parsed = parse(source, &Options { version: self.version, ..Options::default() });
        let text = source.text();
        assert_eq!(parsed.launches.len(), if self.is_pair { 2 } else { 1 }, "launches in\n{text}");
        let of_launch = |launch| self.findings_of(launch, &parsed.launches, text);
        let found: Vec<Diagnostic> = parsed.launches.iter().flat_map(of_launch).collect();
        for diagnostic in &found {
            let lies_in = |span: schemas::text::Span| text.get(span.range()).is_some();
            assert!(lies_in(diagnostic.span), "{} lies in\n{text}", diagnostic.code);
            assert!(diagnostic.related.iter().all(|related| lies_in(related.span)), "{}", diagnostic.code);
        }
        found
    }

    fn findings_of(&self, launch: &Launch, launches: &[Launch], text: &str) -> Vec<Diagnostic> {
        let (version, given) = version_of(launch, self.version);
        let (target, draft) = (self.target.as_ref(), self.draft.as_ref());
        let resolved = resolve(launch, version, given, target, draft, self.memory);
        let context = Context {
            launch,
            launches,
            resolved: &resolved,
            target,
            draft,
            expected_concurrency: self.concurrency,
            gpu_memory: self.memory,
            hardware: Hardware::named_in(text),
        };
        lint(&context, None, &Selection::default())
    }

    /// The text, for messages.
    pub fn text(&self) -> &str {
        self.source.text()
    }
}

/// The findings of all rules in a launch for a version, with the configs of its models (empty for
/// a model of which nothing is known).
pub(crate) fn found_in(text: &str, version: &str, target: &str, draft: &str) -> Vec<Diagnostic> {
    let read = |name, json: &str| (!json.is_empty()).then(|| facts(name, &[], json));
    let (target, draft) = (read("target", target), read("draft", draft));
    let words = format!("bad version:{version}");
    let example = Example::new(&words.split_whitespace().collect::<Vec<_>>(), text);
    Example { target, draft, ..example }.findings()
}

/// Whether a rule finds something in a launch for a version.
pub(crate) fn finds(code: &str, text: &str, version: &str) -> bool {
    found_in(text, version, "", "").iter().any(|found| found.code == code)
}

fn facts(name: &str, words: &[&str], json: &str) -> ModelFacts {
    ModelFacts {
        name: name.to_owned(),
        origin: "the example".into(),
        config: ModelConfig::parse(json).unwrap_or_else(|error| panic!("{error} in {json}")),
        partial: words.contains(&"partial"),
        ..ModelFacts::default()
    }
}

fn tokenizer(lines: &[String]) -> TokenizerFacts {
    TokenizerFacts::parse(&lines.join("\n")).unwrap_or_else(|error| panic!("{error} in {lines:?}"))
}

fn tensors(lines: &[String]) -> TensorHeaders {
    let tensor = |line: &String| {
        let mut words = line.split_whitespace();
        let mut word = || words.next().unwrap_or_else(|| panic!("'{line}' is name, dtype and shape"));
        let (name, dtype, shape) = (word().to_owned(), word().to_owned(), word());
        let shape = shape.split('x').map(|size| size.parse().expect("a size")).collect();
        (name, TensorHeader { dtype, shape })
    };
    TensorHeaders(lines.iter().map(tensor).collect::<BTreeMap<_, _>>())
}
