//! The output of `--dry-run`: the plan, and an estimate of its duration from short measured
//! batches.

use std::collections::BTreeSet;

use schemas::sweep::{Search, StrategyName};
use tuner::{
    runner::estimate::SpeculationEstimate,
    space::Candidate,
    sweep::{LoadSize, Outline, SweepPlan},
    system::server::{FileLookup, LookupState},
    trials::{configuration::Knobs, record::CandidateRole},
};

/// The plan without an estimate.
pub fn outline(outline: &Outline, search: &Search) -> String {
    let mut text = format!("space      {} configurations\n", outline.space.entrants.len());
    for skipped in outline.space.skipped() {
        text += &format!("           {skipped}\n");
    }
    let loads: Vec<String> = outline.loads.iter().map(ToString::to_string).collect();
    text += &format!("loads      {}\n", loads.join(", "));
    let (trials, repeats) = (outline.planned.trials, search.repeats);
    text += &match outline.planned.exact {
        true => format!("trials     {trials} ({repeats} {})\n", if repeats == 1 { "repeat" } else { "repeats" }),
        false => format!(
            "trials     at most {trials}, chosen by {}; {} of them are baselines, which always run\n",
            search.strategy.name(),
            outline.trials.len()
        ),
    };
    text += "\nnum_steps,topk,num_draft_tokens\n";
    let (listed, settings) = listed(outline, search);
    for one in &listed {
        let role = match one.role {
            CandidateRole::NoSpeculation => "   always measured",
            CandidateRole::EngineDefault => "   the engine's default, always measured",
            CandidateRole::Current => "   runs now, always measured",
            CandidateRole::Candidate | CandidateRole::Probe => "",
        };
        text += &format!("  {}{role}\n", one.configuration);
    }
    for knobs in &settings {
        text += &format!("  with the fastest of these under each load: {}\n", knobs.words().join(" "));
    }
    text.push('\n');
    for FileLookup { what, words, .. } in &outline.lookups {
        text += &format!("{what:<10} {words}\n");
    }
    if outline.lookups.iter().any(|one| one.state == LookupState::Missing) {
        text += "           a sweep stops here, before the first start\n";
    }
    if !outline.starts.is_empty() {
        text += &match &outline.not_replayed {
            Some(reason) => format!("acceptance from the servers' counters, with up to 3 more starts: {reason}\n"),
            None if search.strategy == StrategyName::Guided => "acceptance replayed before the first start\n".into(),
            None => String::new(),
        };
        text += if outline.lookups.is_empty() { "" } else { "\n" };
        text += &starts(outline);
        text += &start_lines(outline, &listed);
        text += "\nestimate   unknown before the first start: each configuration waits until its server is ready\n";
    }
    text
}

/// The configurations to list, and the settings that are tried with the best of them only: a guided
/// search on servers chooses the shape first.
fn listed<'a>(outline: &'a Outline, search: &Search) -> (Vec<&'a Candidate>, BTreeSet<&'a Knobs>) {
    let is_guided = search.strategy == StrategyName::Guided && !outline.starts.is_empty();
    let (listed, others): (Vec<_>, Vec<_>) =
        outline.space.entrants.iter().partition(|one| !is_guided || one.configuration.knobs.are_default());
    (listed, others.into_iter().map(|one| &one.configuration.knobs).collect())
}

/// The number of starts of servers.
fn starts(outline: &Outline) -> String {
    let (most, loads) = (outline.most_starts, outline.loads.len());
    let confirms = match (outline.confirms, loads) {
        (false, _) => String::new(),
        (true, 1) => ", and 1 more that confirms the verdict (search.confirm)".into(),
        (true, loads) => format!(", and up to {loads} more that confirm the verdicts (search.confirm)"),
    };
    format!("starts     at most {most}{confirms}\n")
}

/// The command lines of the listed configurations that are always started, an example of the ones
/// of which a search chooses, and why others cannot be started.
fn start_lines(outline: &Outline, listed: &[&Candidate]) -> String {
    let lines = outline.space.entrants.iter().zip(&outline.starts).filter(|(one, _)| listed.contains(one));
    let (certain, chosen): (Vec<_>, Vec<_>) = lines.partition(|(one, line)| {
        let is_chosen = matches!(one.role, CandidateRole::Candidate | CandidateRole::Probe) && !outline.planned.exact;
        line.is_err() || !is_chosen
    });
    let mut text = match chosen.is_empty() {
        true => "starts, one for each configuration that is measured (name and port differ):\n".to_owned(),
        false => "starts of the configurations that are always measured (name and port differ):\n".to_owned(),
    };
    for (_, line) in certain {
        text += &match line {
            Ok(words) => format!("  {words}\n"),
            Err(reason) => format!("  cannot start: {reason}\n"),
        };
    }
    if let Some((example, Ok(words))) = chosen.first() {
        text += &match chosen.len() {
            1 => format!("and, if the search chooses it, {}:\n", example.configuration),
            others => format!(
                "and of the {others} others the ones that the search chooses, {} for example:\n",
                example.configuration
            ),
        };
        text += &format!("  {words}\n");
    }
    text
}

/// A range of seconds; one figure if both ends read the same.
fn duration((low, high): (f64, f64)) -> String {
    let (low, high) = (reports::duration(low), reports::duration(high));
    if low == high { low } else { format!("{low} to {high}") }
}

/// The device, the requests and the estimated duration.
pub fn estimate(plan: &SweepPlan, resume: bool) -> String {
    let mut text = format!("device     {} ({})\n", plan.fingerprint.device, plan.fingerprint.device_name);
    if resume {
        text += &format!("done       {} of {} trials\n", plan.done, plan.trials.len());
    }
    let same =
        plan.requested.windows(2).all(|pair| (pair[0].requests, pair[0].tokens) == (pair[1].requests, pair[1].tokens));
    for (at, LoadSize { load, requests, tokens }) in
        plan.requested.iter().take(if same { 1 } else { usize::MAX }).enumerate()
    {
        let (label, load) =
            (if at == 0 { "a trial" } else { "" }, if same { String::new() } else { format!("{load}: ") });
        text += &format!("{label:<10} {load}{requests} requests, up to {tokens} tokens\n");
    }
    text += &format!(
        "estimate   {}{}, extrapolated from short batches measured just now:\n",
        plan.estimate.range().map_or_else(|| "unknown".into(), duration),
        if plan.planned.exact { "" } else { " for the baselines" }
    );
    if let Some(SpeculationEstimate { shape, times, first_run_s, .. }) = plan.estimate.speculation {
        text += &format!(
            "           {shape}: {} times as long as no speculation, and {} more for the first run of each configuration\n",
            reports::quantity(times),
            reports::duration(first_run_s)
        );
    }
    for one in &plan.estimate.basis {
        let from = one.from_batch.map_or_else(String::new, |batch| format!(" (scaled from batch {batch})"));
        text += &match one.tokens_per_s_per_user.zip(one.trial_seconds) {
            Some((rate, seconds)) => format!(
                "           {}: {} tokens/s for each of {} requests{from}, so {} per trial\n",
                one.load,
                reports::quantity(rate),
                one.batch_size,
                reports::duration(seconds)
            ),
            None => format!("           {}: could not be measured within seconds\n", one.load),
        };
    }
    text
}
