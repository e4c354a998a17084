//! The rules: one file a rule, each with its page.

use crate::{
    diagnostic::{Diagnostic, Severity},
    launch::Launch,
    model::ModelFacts,
    resolve::Resolved,
};

/// What a rule looks at.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The launch, as written.
    pub launch: &'a Launch,
    /// What will run.
    pub resolved: &'a Resolved,
    /// The target, where anything is known of it.
    pub target: Option<&'a ModelFacts>,
    /// The draft, where the launch names one and anything is known of it.
    pub draft: Option<&'a ModelFacts>,
    /// How many requests the user expects to run together.
    pub expected_concurrency: Option<usize>,
    /// Memory of one GPU in MiB.
    pub gpu_memory: Option<u64>,
}

/// A rule: its identity, its page and its check.
pub struct Rule {
    /// Such as `SD070`; stable for good.
    pub code: &'static str,
    /// Such as `dtype-mismatch`.
    pub name: &'static str,
    /// The most a finding of it can be.
    pub severity: Severity,
    /// One line for the table of rules.
    pub summary: &'static str,
    /// The page: the doc comment of the rule's file, in Markdown.
    pub page: &'static str,
    /// Looks, and adds what it finds.
    pub check: fn(&Context<'_>, &mut Vec<Diagnostic>),
}
