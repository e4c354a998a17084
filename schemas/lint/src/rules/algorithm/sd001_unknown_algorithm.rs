//! # SD001: unknown-algorithm
//!
//! The speculative algorithm is not one that the engine's version knows.
//!
//! ## What it does
//!
//! Compares `--speculative-algorithm` with the names that the version takes: EAGLE, EAGLE3 and
//! NEXTN in all versions, STANDALONE, NGRAM, DFLASH, FROZEN_KV_MTP, DSPARK and UNO in later ones.
//! Small letters are taken since 0.5.12, and NONE, which turns speculation off.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! Current versions stop with `ValueError: Unknown speculative algorithm name: X` unless a plug-in
//! has registered the name; up to 0.5.9 argparse refuses it as an invalid choice.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path meta-llama/Llama-3.1-8B-Instruct --speculative-algorithm MEDUSA
//! ```
//!
//! ```launch bad version:0.5.15.post1
//! sglang serve --model-path deepseek-ai/DeepSeek-V4-Flash --speculative-algorithm DSPARK
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path meta-llama/Llama-3.1-8B-Instruct --speculative-algorithm eagle3
//! ```
//!
//! ## Versions
//!
//! STANDALONE came in 0.5.2, NGRAM in 0.5.3, DFLASH in 0.5.11, FROZEN_KV_MTP in 0.5.12, DSPARK in
//! 0.5.16 and UNO in 0.5.20. For a build between two releases the finding says what is not known.
//!
//! ## Source
//!
//! sglang `speculative/spec_info.py`, `arg_groups/speculative_hook.py`; before 0.5.12
//! `server_args.py`.

use launch::placeholder::may_replace_value;
use schemas::{
    algorithm::{Algorithm, parse_algorithm},
    diagnostic::{Safety, Severity},
    engines::{Engine, NEWEST_SGLANG},
    flags::Key,
    text::{distance, shortened},
    tree::NodeSource,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, variants::DraftVariant, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD001",
    name: "unknown-algorithm",
    severity: Severity::Error,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

const NAMES: &[&str] = &["EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH", "DSPARK", "UNO", "FROZEN_KV_MTP"];

/// Between which versions an algorithm came, for those that came after the first version read.
fn came(algorithm: Algorithm) -> Option<Edge> {
    match algorithm {
        Algorithm::Eagle | Algorithm::Eagle3 => None,
        Algorithm::Standalone => Some(Edge::new(V0_5_1_POST3, V0_5_2)),
        Algorithm::Ngram => Some(Edge::new(V0_5_2, V0_5_3)),
        Algorithm::Dflash => Some(Edge::new(V0_5_10, V0_5_11)),
        Algorithm::FrozenKvMtp => Some(Edge::new(V0_5_11, V0_5_12_0)),
        Algorithm::Dspark => Some(Edge::new(V0_5_15, V0_5_16)),
        Algorithm::Uno => Some(Edge::new(V0_5_19, V0_5_20)),
    }
}

fn check(context: &Context<'_>) -> Option<Finding> {
    let name = context.launch.text(Key::SpeculativeAlgorithm)?;
    let version = context.version();
    // It is the name for no speculation, which argparse's list does not have.
    if name.value.eq_ignore_ascii_case("NONE") && version >= V0_5_12_0 {
        return None;
    }
    // `your_algorithm` is for the reader. Names in capitals are names of algorithms.
    if may_replace_value(name.value) && name.value.contains(|letter: char| letter.is_lowercase()) {
        return None;
    }
    // spectune has look-ups of vLLM under names of its own.
    let looks_up = matches!(NodeSource::named(name.value), NodeSource::Text(_));
    if context.launch.engine == Engine::Spectune && looks_up {
        return None;
    }
    let spell = |known: &str| context.launch.set(Key::SpeculativeAlgorithm, version, known);
    let Some((algorithm, _)) = parse_algorithm(name.value, NEWEST_SGLANG) else {
        let shown = shortened(name.value);
        let finding = Finding::new(name.span, format!("no speculative algorithm is called `{shown}`"), "not known")
            .sglang_says(format!("ValueError: Unknown speculative algorithm name: {shown}"))
            .note("a plug-in that registers an algorithm under this name would make it known")
            .by_engine();
        if let Some(variant) = DraftVariant::named(name.value) {
            return Some(finding.help(format!(
                "{} is a kind of draft, and no algorithm: {}",
                variant.name,
                variant.runs()
            )));
        }
        let near = NAMES.iter().map(|known| (distance(known, &shown.to_ascii_uppercase()), *known)).min();
        return Some(match near.filter(|(far, _)| *far <= 2) {
            Some((_, known)) => finding
                .help(format!("write `{}`", context.line(Key::SpeculativeAlgorithm, known)))
                .fix(Safety::Unsafe, "write the intended algorithm", vec![spell(known)]),
            None => finding.by_plugin().help(format!("write one of {}", NAMES.join(", "))),
        });
    };
    // The rest is about versions of SGLang.
    if context.launch.engine == Engine::Spectune {
        return None;
    }
    let edge = came(algorithm).filter(|edge| edge.side(version) != Side::After);
    if let Some(edge) = edge {
        let lacks = edge.says(version, "does not have", "may not have");
        let message = format!("sglang {version} {lacks} the algorithm {}", algorithm.name());
        let finding = Finding::new(name.span, message, "came later").maybe_note(edge.doubt(version)).by_version();
        let finding = finding.help(format!("use another algorithm, or a version that has {}", algorithm.name()));
        return Some(if edge.side(version) == Side::Between { finding.at_most(Severity::Warning) } else { finding });
    }
    let folded = name.value.to_ascii_uppercase();
    let cases = Edge::new(V0_5_11, V0_5_12_0);
    if folded == name.value || cases.side(version) == Side::After {
        return None;
    }
    let takes = cases.says(version, "takes", "may take");
    let message = format!("sglang {version} {takes} the algorithm's name in capitals only");
    let finding = Finding::new(name.span, message, "not in capitals")
        .maybe_note(context.launch.callee.is_none().then(|| {
            format!("sglang says: `error: argument --speculative-algorithm: invalid choice: '{}'`", name.value)
        }))
        .maybe_note(cases.doubt(version))
        .by_version()
        .help(format!("write `{}`", context.line(Key::SpeculativeAlgorithm, &folded)))
        .fix(Safety::Safe, "write the name in capitals", vec![spell(&folded)]);
    Some(if cases.side(version) == Side::Between { finding.at_most(Severity::Warning) } else { finding })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_of_a_version_is_not_stated() {
        let dflash = came(Algorithm::Dflash).expect("an edge");
        let post = V0_5_10.post(1);
        assert_eq!(dflash.side(post), Side::Between);
        let text = "python3 -m sglang.launch_server --model-path m --speculative-algorithm DFLASH \
                    --speculative-draft-model-path d --max-running-requests 8";
        let options = crate::report::ReportOptions { version: Some(post), ..Default::default() };
        let found = crate::report::report_text(&schemas::text::Source::new("run.sh", text), &options).findings;
        let one = found.iter().find(|one| one.code == "SD001").expect("a finding");
        assert_eq!(one.severity, Severity::Warning);
        assert!(one.message.contains("may not have"), "{one:?}");
    }

    #[test]
    fn versions_that_a_report_shows_with_an_algorithm_have_it() {
        // sglang issue #12726 runs NGRAM on 0.5.4.post3, which NR20 is about.
        let edge = came(Algorithm::Ngram).expect("an edge");
        assert_eq!([V0_5_4.post(3), V0_5_5].map(|version| edge.side(version)), [Side::After; 2]);
    }

    #[test]
    fn algorithms_come_with_the_versions_that_readers_know() {
        for (algorithm, _) in NAMES.iter().filter_map(|name| parse_algorithm(name, NEWEST_SGLANG)) {
            let before_and_after = came(algorithm).zip(algorithm.since());
            let agrees = before_and_after.is_none_or(|(edge, since)| edge.side(since) == Side::After);
            assert!(agrees && came(algorithm).is_some() == algorithm.since().is_some(), "{algorithm:?}");
        }
    }
}
