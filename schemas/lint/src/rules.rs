//! The rules, one file per rule.
//!
//! The doc comment at the start of a rule's file is its page, in Markdown. `spectune explain`
//! prints it, `docs/rules` contains it, and the launches in its code blocks are the rule's tests:
//! see `page.rs`.

mod accepted;
mod area;
mod class_table;
mod devices;
#[cfg(test)]
mod examples;
mod explain;
mod hardware;
mod keywords;
mod known;
mod page;
mod peers;
mod platform;
mod refused;
mod registry;
mod selection;
mod support;
mod unchecked;
mod unstated;
mod variables;
mod variants;
mod versions;

mod algorithm;
mod context;
mod dtype;
mod graph;
mod hidden;
mod memory;
mod sampling;
mod scheduler;
mod slime;
mod tree;
mod vllm;
mod vocabulary;

pub use area::{area_of, areas};
#[cfg(test)]
pub(crate) use examples::Example;
pub use explain::{descriptor, explain, table};
pub use hardware::Hardware;
pub use page::RulePage;
pub use registry::RULES;
pub use selection::{Selection, SelectionError};
pub(crate) use selection::{Selector, keys};

pub(crate) use unchecked::unchecked;
pub use unchecked::{NeededFact, Unchecked};
use unstated::Candidates;

use launch::{Launch, resolve::Resolved};
use schemas::{
    diagnostic::{Diagnostic, Severity},
    engines::Engine,
    finding::{Doubt, Finding, settle},
    model::ModelFacts,
};

/// The input of a rule.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The launch, as written.
    pub launch: &'a Launch,
    /// All launches of its text, for rules about engines that work together.
    pub launches: &'a [Launch],
    /// The configuration that will run.
    pub resolved: &'a Resolved,
    /// The target, if anything is known of it.
    pub target: Option<&'a ModelFacts>,
    /// The draft, if the launch names one and anything is known of it.
    pub draft: Option<&'a ModelFacts>,
    /// Number of requests that the user expects to run together.
    pub expected_concurrency: Option<usize>,
    /// Memory of one GPU in MiB.
    pub gpu_memory: Option<u64>,
    /// What the text says of the accelerators.
    pub hardware: Hardware,
}

#[cfg(test)]
impl<'a> Context<'a> {
    /// That of a launch alone in its text, of which nothing else is known.
    fn alone(launch: &'a Launch, resolved: &'a Resolved) -> Self {
        let (target, draft, expected_concurrency, gpu_memory) = (None, None, None, None);
        let hardware = Hardware::default();
        Self { launch, launches: &[], resolved, target, draft, expected_concurrency, gpu_memory, hardware }
    }
}

/// What the file of a rule defines: its identity and its check.
#[derive(Clone, Copy)]
struct Definition {
    code: &'static str,
    name: &'static str,
    severity: Severity,
    applies: Applies,
    check: RuleCheck,
}

/// A rule: its identity, its area, its page and its check.
pub struct LintRule {
    /// Such as `SD070`; permanent.
    pub code: &'static str,
    /// Such as `dtype-mismatch`.
    pub name: &'static str,
    /// Maximum severity of its findings.
    pub severity: Severity,
    /// The folder of its file.
    pub area: &'static str,
    /// The engine whose behaviour it is about.
    applies: Applies,
    /// The text of the rule's file, which starts with its page.
    file: &'static str,
    check: RuleCheck,
}

/// The engine whose behaviour a rule is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Applies {
    /// All engines.
    All,
    /// Any engine with SGLang's flags: the configuration contradicts itself or its checkpoints.
    AnyEngine,
    /// SGLang (and slime, which starts it).
    Sglang,
    /// vLLM.
    Vllm,
}

impl Applies {
    /// Whether it is about launches of this engine. vLLM has separate rules.
    fn covers(self, engine: Engine) -> bool {
        self == Self::All || (engine == Engine::Vllm) == (self == Self::Vllm)
    }
}

/// The check of a rule. If a fact that it needs is unknown, it finds nothing.
#[derive(Clone, Copy)]
enum RuleCheck {
    One(fn(&Context<'_>) -> Option<Finding>),
    Several(fn(&Context<'_>) -> Vec<Finding>),
}

impl LintRule {
    const fn new(definition: Definition, area: &'static str, file: &'static str) -> Self {
        let Definition { code, name, severity, applies, check } = definition;
        Self { code, name, severity, area, applies, file, check }
    }

    /// Whether it is about what SGLang does, and the launch is for an engine with SGLang's flags.
    fn is_of_other_engine(&self, engine: Engine) -> bool {
        engine == Engine::Spectune && self.applies == Applies::Sglang
    }

    /// The page: what the rule finds, why, what the engine does, examples, versions and sources.
    pub fn page(&self) -> RulePage {
        RulePage::from_file(self.file)
    }

    /// The findings in a launch, with the doubts about the launch.
    fn look(&self, context: &Context<'_>) -> Vec<Finding> {
        let found = match self.check {
            RuleCheck::One(check) => check(context).into_iter().collect(),
            RuleCheck::Several(check) => check(context),
        };
        // spectune's own flags are those of sglang, so the rules for sglang apply, with a remark.
        let is_elsewhere = self.is_of_other_engine(context.launch.engine);
        let (doubts, is_editable) = (context.launch.doubts(), context.launch.is_editable());
        let of_rule = |finding: Finding| {
            let mut finding = finding.with_code(self.code, self.name, self.severity);
            finding.doubts.extend(&doubts);
            // Where the text comes from another form of the launch, there are no places to edit.
            finding.fix = finding.fix.filter(|_| is_editable);
            if !is_elsewhere {
                return finding;
            }
            finding.doubt(Doubt::OtherEngine).note(format!(
                "the launch is for spectune's own engine; this is what sglang {} would do with it",
                context.resolved.version
            ))
        };
        found.into_iter().map(of_rule).collect()
    }
}

/// The findings of the selected rules in a launch, sorted by place and then by code. vLLM launches
/// have separate rules. If the version is not stated, no error depends on it (see `unstated.rs`).
///
/// `unnamed` is the same launch without what names of models say of their classes, if that is all
/// that is known of one of them: findings that are not in it are doubtful.
pub(crate) fn lint(context: &Context<'_>, unnamed: Option<&Context<'_>>, selection: &Selection) -> Vec<Diagnostic> {
    let rules = RULES.iter().filter(|rule| selection.admits_rule(rule, context.launch.engine));
    let (context, unnamed) = (&context.with_loaded(), unnamed.map(Context::with_loaded));
    let unnamed = unnamed.as_ref();
    let candidates = Candidates::new(context);
    let settled = |rule: &LintRule| {
        let judged = |found| settle(found, |found, severity| candidates.judge(rule, found, severity));
        let mut found = rule.look(context);
        let without = unnamed.map(|unnamed| rule.look(unnamed)).unwrap_or_default();
        for one in found.iter_mut().filter(|_| unnamed.is_some()) {
            // What is found without the model too, and as bad, does not depend on its name.
            let is_same = |other: &&Finding| other.span == one.span && other.message == one.message;
            if without.iter().find(is_same).is_none_or(|other| other.harm < one.harm) {
                one.doubts.insert(Doubt::ModelByName);
            }
        }
        found.into_iter().filter_map(judged).collect::<Vec<_>>()
    };
    let mut found: Vec<Diagnostic> = rules.flat_map(settled).collect();
    // In the order of the text, as it is read.
    found.sort_by_key(|diagnostic| (diagnostic.span, diagnostic.code));
    found
}

#[cfg(test)]
mod tests;
