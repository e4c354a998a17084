//! The findings in a text: what the reader and the rules find, with the severity that it has in
//! this text, without what the text's comments suppress. The only way to a severity.

mod outside;

use std::collections::HashSet;

use launch::{
    Launch, Parsed, parse,
    resolve::{Resolved, resolve, version_of},
};
use schemas::{
    diagnostic::{self, Diagnostic, Findings, Format, sarif, tidy},
    engines::{Engine, newest_known},
    finding::settle_all,
    model::ModelFacts,
    problems::NEWER_VERSION,
    text::{Source, Span},
    version::EngineVersion,
};

use crate::{
    published_models,
    rules::{self, Context, Hardware, Selection, Unchecked, lint, unchecked},
    suppression,
};

/// What the user gives in addition to the text.
#[derive(Clone, Debug, Default)]
pub struct ReportOptions {
    /// The selected rules.
    pub selection: Selection,
    /// The engine's version.
    pub version: Option<EngineVersion>,
    /// Memory of one GPU in MiB.
    pub gpu_memory: Option<u64>,
    /// Number of requests that are expected to run together.
    pub expected_concurrency: Option<usize>,
    /// Whether to list the rules that could not be checked.
    pub unchecked: bool,
}

/// Codes of rules about defaults, whose findings are alike in all launches of a text.
const ONCE_A_TEXT: [&str; 1] = ["SD090"];

/// Facts of a launch's target and draft, if anything is known of them.
pub type ReportedModels = (Option<ModelFacts>, Option<ModelFacts>);

/// The findings in a text.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The findings, sorted by position.
    pub findings: Vec<Diagnostic>,
    /// The configuration of each launch, in their order.
    pub resolved: Vec<Resolved>,
    /// The rules that could not be checked in each launch, if they are listed.
    pub unchecked: Vec<(Span, Vec<Unchecked>)>,
}

/// Checks the launches of a text. `facts` returns what is known of the models of a launch.
pub fn report(
    source: &Source,
    parsed: Parsed,
    mut facts: impl FnMut(&Launch) -> ReportedModels,
    options: &ReportOptions,
) -> Report {
    let mut found = settle_all(parsed.findings);
    found.retain(|finding| options.selection.admits_finding(finding));
    let mut all_resolved = Vec::with_capacity(parsed.launches.len());
    let mut all_unchecked = Vec::new();
    let hardware = Hardware::named_in(source.text());
    for launch in &parsed.launches {
        let (target, draft) = facts(launch);
        let (target, draft) = (target.as_ref(), draft.as_ref());
        let (version, given) = version_of(launch, options.version);
        let resolved = resolve(launch, version, given, target, draft, options.gpu_memory);
        let ReportOptions { gpu_memory, expected_concurrency, .. } = *options;
        let launches = parsed.launches.as_slice();
        let context = Context {
            launch,
            launches,
            resolved: &resolved,
            target,
            draft,
            expected_concurrency,
            gpu_memory,
            hardware,
        };
        let read = |facts: &&ModelFacts| !facts.by_name;
        let (read_target, read_draft) = (target.filter(read), draft.filter(read));
        // Without a model known by its name only, the second resolution would be the first again.
        let is_by_name = read_target.is_some() != target.is_some() || read_draft.is_some() != draft.is_some();
        let unnamed = is_by_name.then(|| resolve(launch, version, given, read_target, read_draft, options.gpu_memory));
        let unnamed =
            unnamed.as_ref().map(|resolved| Context { resolved, target: read_target, draft: read_draft, ..context });
        found.extend(newer_version(launch, version, given).filter(|one| options.selection.admits_finding(one)));
        let mut of_launch = lint(&context, unnamed.as_ref(), &options.selection);
        // A fix sees this launch alone, but the text around it may use the same words.
        of_launch.iter_mut().for_each(|one| outside::doubt_fix(source, launch, one));
        let fired: HashSet<&str> = of_launch.iter().map(|one| one.code).collect();
        found.extend(of_launch);
        if options.unchecked {
            // What was found was checked, with the facts that are known of the model's name.
            let mut of_launch = unchecked(&context, &options.selection);
            of_launch.retain(|one| !fired.contains(one.code));
            all_unchecked.push((launch.anchor, of_launch));
        }
        all_resolved.push(resolved);
    }
    // Before repeats are removed: a comment may suppress the one that would be kept.
    let mut findings = suppression::apply(source, found, &options.selection);
    once_a_place(&mut findings);
    tidy(&mut findings);
    Report { findings: once_a_text(findings), resolved: all_resolved, unchecked: all_unchecked }
}

/// Says of a stated version that it is newer than all that are known.
fn newer_version(launch: &Launch, version: EngineVersion, is_given: bool) -> Option<Diagnostic> {
    let newest = newest_known(launch.engine);
    // The own engine has the version of this program.
    if !is_given || launch.engine == Engine::Spectune || version <= newest {
        return None;
    }
    let engine = launch.engine.reference();
    let message =
        format!("{engine} {version} is newer than {newest}, the newest that is known: it is checked like that");
    let place = launch.engine_version.filter(|stated| stated.value == version).map_or(launch.anchor, |one| one.span);
    let finding = NEWER_VERSION.at(place, message, "not known");
    Some(finding.help("check the number, or look for a newer version of spectune").certain())
}

/// Of a finding that is the same on several paths through a script, but for how sure it is, keeps
/// the surest.
fn once_a_place(findings: &mut Vec<Diagnostic>) {
    // The sort is stable, so of equal findings the most severe one is kept.
    findings.sort_by_key(|found| std::cmp::Reverse(found.severity));
    let mut seen = HashSet::new();
    findings.retain(|found| seen.insert((found.code, found.span, found.message.clone())));
}

/// Reports a finding about a default once, for all launches of the text that keep it.
fn once_a_text(findings: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let mut kept: Vec<Diagnostic> = Vec::with_capacity(findings.len());
    let mut repeats: Vec<usize> = Vec::with_capacity(findings.len());
    for found in findings {
        // A finding with a fix stays, since its fix changes its own launch only.
        let is_once = ONCE_A_TEXT.contains(&found.code) && found.fix.is_none();
        let same = |other: &Diagnostic| is_once && other.code == found.code && other.message == found.message;
        match kept.iter().position(same) {
            Some(first) => repeats[first] += 1,
            None => {
                kept.push(found);
                repeats.push(0);
            }
        }
    }
    for (found, repeats) in kept.iter_mut().zip(repeats).filter(|(_, repeats)| *repeats > 0) {
        let others = if repeats == 1 { "another launch".to_owned() } else { format!("{repeats} other launches") };
        found.notes.push(format!("the same is true of {others} in this text"));
    }
    kept
}

/// Reads a text and checks it with the facts of published models: `spectune lint` without access to
/// files.
pub fn report_text(source: &Source, options: &ReportOptions) -> Report {
    let parsed = parse(source, &launch::Options { version: options.version, ..launch::Options::default() });
    report(source, parsed, published_models::facts_of, options)
}

/// Renders the findings of all texts, with the pages of rules where the format has a place for
/// them.
pub fn render(findings: &[Findings<'_>], format: Format, colour: bool) -> String {
    match format {
        Format::Sarif => sarif::render(findings, rules::descriptor),
        format => diagnostic::render(findings, format, colour),
    }
}

#[cfg(test)]
mod snapshot;
