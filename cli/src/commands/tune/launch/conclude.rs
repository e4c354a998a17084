//! The end of a tuned launch: its change, or why it stays as it is, and the policy of an engine
//! that follows one.

use std::path::{Path, PathBuf};

use launch::Launch;
use schemas::{
    engines::Engine,
    export::{Form, Tuning, export},
    flags::Key,
    quoting::quoted,
    secrets::starred,
    text::Source,
    tree::TreeShape,
};
use tuner::{
    from_launch::{LaunchSweep, rewrite},
    results::selection::{Comparison, LoadRanking, SpeculationVerdict, replacement},
    sweep::SweepSummary,
    trials::configuration::{Configuration, TrialLoad},
};

use super::Mode;
use crate::{commands::lint, results_folder, setup, terminal};

/// A tuned launch.
pub struct Conclusion<'a> {
    pub source: &'a Source,
    pub file: &'a Path,
    pub launch: &'a Launch,
    pub plan: &'a LaunchSweep,
    pub summary: &'a SweepSummary,
    pub mode: Mode,
    /// Folder of the results.
    pub out: &'a Path,
}

impl Conclusion<'_> {
    /// Prints the change of the launch, and writes it if requested.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn show(&self) -> anyhow::Result<()> {
        let name = self.source.name();
        let rankings = self.summary.ranking.as_slice();
        let runs_now = if speculates(self.launch) { self.plan.own } else { Some(TreeShape::OFF) };
        let runs_now = runs_now.map(Configuration::from_shape);
        let decided: Vec<(TrialLoad, Option<Configuration>)> =
            rankings.iter().map(|one| (one.load, self.decision(one, runs_now.as_ref()))).collect();
        let configuration = match in_common(&decided) {
            Some(configuration) => configuration,
            None => {
                terminal::note(&differing(name, &decided));
                return self.policy(&decided);
            }
        };
        let margin = || {
            let margins =
                rankings.iter().filter_map(|one| margin(one, runs_now.as_ref()?)).collect::<Vec<_>>().join("; ");
            if margins.is_empty() { margins } else { format!(" ({margins})") }
        };
        let Some(configuration) = configuration else {
            terminal::note(&format!(
                "{name} stays as it is: nothing is shown to be faster{}{}; see the verdicts above",
                margin(),
                self.simulation_words()
            ));
            return Ok(());
        };
        if runs_now.as_ref() == Some(configuration) {
            let end = self.simulation_words();
            terminal::note(&format!("{name} stays as it is: nothing faster was found{}{end}", margin()));
            return Ok(());
        }
        self.change(configuration)
    }

    /// The configuration that a launch for this load should have; `None` if that is not known. What
    /// runs now is replaced only by what is shown to be faster than it, and where it is not known
    /// what runs now, by what the verdict says.
    fn decision(&self, ranking: &LoadRanking, runs_now: Option<&Configuration>) -> Option<Configuration> {
        let chosen = match ranking.verdict {
            SpeculationVerdict::Pays | SpeculationVerdict::DoesNotPay => ranking.chosen.clone(),
            SpeculationVerdict::Tie
            | SpeculationVerdict::CannotTell(_)
            | SpeculationVerdict::AllFailed
            | SpeculationVerdict::NotCompared => None,
        };
        // What runs now is not among the candidates, so there is nothing to replace it against.
        let Some(now) = runs_now else { return chosen };
        let comparison = Comparison::from_sweep(&self.plan.file);
        // A launch is changed only for a gain that is shown over its own shape, not over no
        // speculation.
        let better = replacement(&self.summary.records, ranking, now, comparison);
        better.map(|one| one.configuration).or_else(|| chosen.filter(|configuration| configuration == now))
    }

    /// Prints or writes the launch with another configuration.
    fn change(&self, to: &Configuration) -> anyhow::Result<()> {
        let name = self.source.name();
        let draft = &self.plan.draft;
        let changed = rewrite(self.source, self.launch, draft, to);
        let why = format!("{}{}", gain(to, self.plan.own, &self.summary.ranking), self.simulation_words());
        match (&changed.text, self.mode) {
            (Some(text), Mode::Write) => {
                lint::write_changed(text, self.file, self.source)?;
                terminal::note(&format!("{name} is changed: {why}"));
            }
            (Some(text), _) => {
                // Shown, not written: the file is the user's, and the change rests on one
                // measurement.
                let difference = lint::difference(self.source, text);
                let shown = starred(&difference);
                terminal::print(&shown)?;
                let hidden = if shown == difference { "" } else { " (secrets are shown as stars)" };
                terminal::note(&format!(
                    "{why}; to write this into {name}: the same command with --write --resume{hidden}"
                ));
            }
            (None, _) if changed.flags.is_empty() => {
                terminal::note(&format!(
                    "{why}: remove the speculative flags from {name}, which cannot be edited here"
                ));
            }
            (None, _) => {
                terminal::print(&format!("{}\n", changed.flags))?;
                terminal::note(&format!("{why}; {name} cannot be edited here: change these flags by hand"));
            }
        }
        Ok(())
    }

    /// Writes the table of the loads as the file that the engine follows, if it follows one.
    fn policy(&self, decided: &[(TrialLoad, Option<Configuration>)]) -> anyhow::Result<()> {
        if !self.plan.file.batch.contexts.is_empty() {
            terminal::note("servers follow the batch, not the context: choose the shape of the contexts that count");
            return Ok(());
        }
        let Some(tuned) = self.summary.tuned.as_ref().filter(|_| decided.iter().all(|(_, one)| one.is_some())) else {
            return Ok(());
        };
        let tuning = Tuning::from(&setup::read_exported(tuned, None)?);
        let form = if self.launch.engine == Engine::Vllm { Form::Vllm } else { Form::SglangAdaptive };
        let exported = match export(&tuning, form, None, None) {
            Ok(exported) => exported,
            Err(reason) => {
                terminal::note(&format!("this engine follows no table of these shapes: {reason}"));
                return Ok(());
            }
        };
        if form == Form::Vllm {
            terminal::note("vLLM follows a schedule of these chains, in --speculative-config:");
            return terminal::print(&exported.text);
        }
        let place = self.policy_file();
        std::fs::write(&place, &exported.text)?;
        terminal::note(&format!(
            "SGLang follows a table of these chains, written to {}: add --speculative-adaptive \
             --speculative-adaptive-config {} to {}",
            place.display(),
            quoted(&place.display().to_string()),
            self.source.name()
        ));
        Ok(())
    }

    /// Next to the launch if that may be changed, else with the results.
    fn policy_file(&self) -> PathBuf {
        let folder = match self.mode {
            Mode::Write => schemas::paths::folder_of(self.file),
            Mode::Measure | Mode::DryRun | Mode::PrintSweep => self.out.to_owned(),
        };
        folder.join(format!("{}.adaptive.json", results_folder::stem(self.file, "launch")))
    }

    /// That acceptance is simulated, where it is.
    fn simulation_words(&self) -> &'static str {
        let is_simulated = self.plan.file.system.simulates_acceptance();
        if is_simulated { ", with simulated acceptance, which says nothing about text" } else { "" }
    }
}

/// What all loads would take, which may be that nothing is decided; `None` if they differ. More
/// captured batch sizes are no difference: they cost memory, not speed.
fn in_common(decided: &[(TrialLoad, Option<Configuration>)]) -> Option<Option<&Configuration>> {
    let ((_, first), rest) = decided.split_first()?;
    let shape = |one: &Option<Configuration>| one.as_ref().map(|one| one.shape);
    let are_equal = rest.iter().all(|(_, one)| shape(one) == shape(first));
    let configurations = decided.iter().filter_map(|(_, one)| one.as_ref());
    // Shapes decide; of equal ones, that with the most settings names all that was chosen.
    are_equal.then(|| configurations.max_by_key(|one| one.knobs.words().len()))
}

/// What each load would take, if they differ.
fn differing(name: &str, decided: &[(TrialLoad, Option<Configuration>)]) -> String {
    let mut text = format!("{name} stays as it is: it runs one shape, but the loads differ:\n");
    for (load, configuration) in decided {
        let what = configuration.as_ref().map_or_else(|| "not decided".to_owned(), ToString::to_string);
        text += &format!("  {load}: {what}\n");
    }
    text + "tune for the load that counts: --concurrency N"
}

/// Why a configuration is better than what the launch runs now.
fn gain(to: &Configuration, own: Option<TreeShape>, rankings: &[LoadRanking]) -> String {
    let own = own.map(Configuration::from_shape);
    let of_load = |ranking: &LoadRanking| {
        let new = speed(ranking, to)?;
        let old = own.as_ref().and_then(|own| Some(format!(", {:.0} with {own}", speed(ranking, own)?)));
        Some(format!("{}: {new:.0} tokens/s{}", ranking.load, old.unwrap_or_default()))
    };
    let figures: Vec<String> = rankings.iter().filter_map(of_load).collect();
    let is_open = rankings.iter().any(|one| matches!(one.verdict, SpeculationVerdict::CannotTell(_)));
    let open = if is_open { "; another one may be faster still, see the verdicts above" } else { "" };
    format!("{to} is faster ({}){open}", figures.join("; "))
}

/// How a configuration compares with the fastest other one under a load.
fn margin(ranking: &LoadRanking, this: &Configuration) -> Option<String> {
    let own = speed(ranking, this)?;
    let others = ranking.entries.iter().filter(|entry| entry.configuration != *this);
    let others = others.filter_map(|entry| Some((entry.output_tokens_per_s?.median, &entry.configuration)));
    let (next, other) = others.max_by(|one, two| one.0.total_cmp(&two.0))?;
    let share = 100.0 * (own / next - 1.0);
    Some(format!("{}: {this} at {own:.0} tokens/s, {other} at {next:.0}, a difference of {share:+.1}%", ranking.load))
}

fn speed(ranking: &LoadRanking, configuration: &Configuration) -> Option<f64> {
    let entry = ranking.entries.iter().find(|entry| entry.configuration == *configuration)?;
    Some(entry.output_tokens_per_s?.median)
}

fn speculates(launch: &Launch) -> bool {
    launch.has(Key::SpeculativeAlgorithm) || launch.vllm_speculation().is_some()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use schemas::sweep::SweepFile;
    use tuner::{
        from_launch::{LaunchOverrides, choose, read_to_run, sweep_of, variables},
        strategy::StopReason,
    };

    use super::*;

    const TUNED: &str = include_str!("conclude/tuned.toml");
    const LAUNCH: &str = "python3 -m sglang.launch_server --model-path models/target --speculative-algorithm EAGLE3 \
                          --speculative-draft-model-path models/draft --speculative-num-steps 3 \
                          --speculative-eagle-topk 1 --speculative-num-draft-tokens 4\n";

    fn wanted() -> LaunchOverrides {
        let text =
            "[models]\ntarget='t'\ndraft='d'\nalgorithm='EAGLE3'\n[workload]\nrandom={input_length=8}\nrequests=4\n";
        LaunchOverrides {
            workload: SweepFile::read(&Source::new("s", text)).expect("a sweep file").workload,
            concurrency: vec![1, 8],
            contexts: Vec::new(),
            repeats: 3,
            seconds: None,
            until: Default::default(),
            draft: None,
            command: None,
            start: None,
            local: false,
            keep_prefix_cache: false,
            variables: None,
        }
    }

    /// The policy files that are in the folder of the launch and in that of the results, as text.
    fn policies(mode: Mode, decided: [Option<TreeShape>; 2], tuned: &str) -> (Option<String>, Option<String>) {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, out) = (folder.path().join("run.sh"), folder.path().join("out"));
        fs::create_dir(&out).expect("a folder");
        fs::write(out.join("tuned.toml"), tuned).expect("a tuned file");
        let source = Source::new("run.sh", LAUNCH);
        let variables = variables(BTreeMap::new());
        let parsed = read_to_run(&source, &variables);
        let launch = choose(&source, &parsed.launches, None).expect("one launch");
        let plan = sweep_of(&source, launch, &wanted()).expect("a sweep");
        let summary = SweepSummary {
            records: Vec::new(),
            ran: 0,
            kept: 0,
            ranking: Vec::new(),
            tuned: Some(out.join("tuned.toml")),
            stopped: StopReason::Settled,
            cut: None,
        };
        let conclusion =
            Conclusion { source: &source, file: &file, launch, plan: &plan, summary: &summary, mode, out: &out };
        let [first, second] = decided.map(|shape| shape.map(Configuration::from_shape));
        conclusion
            .policy(&[(TrialLoad::BatchSize(1), first), (TrialLoad::BatchSize(8), second)])
            .expect("it is written");
        let read = |folder: &Path| fs::read_to_string(folder.join("run.adaptive.json")).ok();
        (read(folder.path()), read(&out))
    }

    #[test]
    fn loads_that_differ_in_capture_sizes_alone_agree() {
        let plain = Configuration::from_shape(TreeShape::chain(3));
        let knobs = tuner::trials::configuration::Knobs { capture_sizes: Some(vec![1, 5]), ..Default::default() };
        let wider = Configuration { knobs, ..plain.clone() };
        let decided = |one: &Configuration| {
            [(TrialLoad::BatchSize(1), Some(one.clone())), (TrialLoad::BatchSize(5), Some(wider.clone()))]
        };
        assert_eq!(in_common(&decided(&plain)), Some(Some(&wider)));
        assert_eq!(in_common(&decided(&Configuration::from_shape(TreeShape::OFF))), None);
        assert_eq!(in_common(&[(TrialLoad::BatchSize(1), None)]), Some(None));
    }

    #[test]
    fn loads_with_different_chains_are_a_policy_next_to_the_launch_or_the_results() {
        let chains = [Some(TreeShape::chain(5)), Some(TreeShape::chain(1))];
        let (next_to_launch, with_results) = policies(Mode::Measure, chains, TUNED);
        let policy: serde_json::Value = serde_json::from_str(&with_results.expect("a policy")).expect("JSON");
        assert!(next_to_launch.is_none() && policy.to_string().contains('5'), "{policy}");
        let (next_to_launch, with_results) = policies(Mode::Write, chains, TUNED);
        assert!(next_to_launch.is_some() && with_results.is_none());
    }

    #[test]
    fn an_undecided_load_and_a_tree_are_no_policy() {
        let chain = Some(TreeShape::chain(5));
        assert_eq!(policies(Mode::Write, [chain, None], TUNED), (None, None));
        let tree = TUNED
            .replace("num_steps = 1\ntopk = 1\nnum_draft_tokens = 2", "num_steps = 3\ntopk = 4\nnum_draft_tokens = 8");
        assert_eq!(policies(Mode::Write, [chain, chain], &tree), (None, None));
    }
}
