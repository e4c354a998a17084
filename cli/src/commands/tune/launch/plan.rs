//! What is printed before a launch is measured: how its flags are measured, and what is not varied.

use launch::Launch;
use schemas::{
    engines::Engine,
    model::published::{Published, drafts_of, id_of, small_models_of},
    secrets,
    sweep::{SweepFile, SweepModels, SystemKind},
    text::Source,
};
use tuner::from_launch::LaunchSweep;

use super::needs::LaunchNeeds;

/// The widest column of the table of flags.
const WIDEST: usize = 60;

/// The flags that are not measured as the launch has them, and what is not varied.
pub fn table(source: &Source, launch: &Launch, plan: &LaunchSweep, refused: &[String], needs: &LaunchNeeds) -> String {
    let line = source.position(launch.anchor.start).line;
    let mut text = format!("{}, line {line}: {}\n", source.name(), words(source.slice(launch.anchor)));
    let short = |text: &str| match text.char_indices().nth(WIDEST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    };
    let rows: Vec<(String, String, &str)> =
        plan.treated.iter().map(|row| (short(&row.launch), short(&row.measured), row.why)).collect();
    let width = |of: fn(&(String, String, &str)) -> usize| rows.iter().map(of).max().unwrap_or_default();
    let (first, second) = (width(|row| row.0.chars().count()), width(|row| row.1.chars().count()));
    text += &format!("  {:<first$}  {:<second$}  why\n", "launch", "measured");
    for (launch, measured, why) in &rows {
        text += &format!("  {launch:<first$}  {measured:<second$}  {why}\n");
    }
    text += &format!("shapes: {}\n", shapes(launch, plan));
    text += &format!("capture sizes: {}\n", needs.capture_sizes(&plan.file));
    text += "not varied:\n";
    for line in not_varied(launch, plan) {
        text += &format!("  {line}\n");
    }
    for shape in refused {
        text += &format!("  {shape}\n");
    }
    text += &format!("{}\n", needs.memory());
    text.trim_end().to_owned()
}

/// The words of a program, without the quotes and commas of a list.
fn words(text: &str) -> String {
    let parts = text.split(['"', '\'', ',']).map(str::trim).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(" ")
}

/// What is tried: num_steps,topk,num_draft_tokens of each.
fn shapes(launch: &Launch, plan: &LaunchSweep) -> String {
    let own = plan.own.map_or_else(String::new, |own| format!("the launch's {own}, "));
    let others = plan.file.space.shapes.join("; ");
    let engine = launch.engine;
    format!("no speculation, {own}what {engine} drafts by default, and those of these that look promising: {others}")
}

fn not_varied(launch: &Launch, plan: &LaunchSweep) -> Vec<String> {
    let mut lines = vec!["all other flags: as in the launch, or the engine's default".to_owned()];
    lines.push(match published(&plan.file).as_slice() {
        [] => "the draft: try another one with --draft".into(),
        drafts => format!(
            "the draft: try another one with --draft; published ones that fit this target: {} (--print-sweep proposes a sweep of all)",
            drafts.iter().map(|(name, algorithm)| format!("{name} ({algorithm})")).collect::<Vec<_>>().join(", ")
        ),
    });
    lines.extend((launch.engine == Engine::Vllm).then(|| "trees: vLLM drafts chains".into()));
    if plan.file.system.address.is_some() {
        lines.push("host and port: the start command sets them".into());
    }
    lines
}

/// The drafts that were published for the target of a sweep, with their algorithms, without the
/// sweep's own; then the small models of its series.
fn published(file: &SweepFile) -> Vec<(&'static str, &'static str)> {
    let own = id_of(&file.models.draft);
    let is_own = file.system.kind == SystemKind::Spectune;
    let runs = |row: &&Published| if is_own { !row.pickle } else { row.config.runs_in_servers() };
    let heads = drafts_of(&file.models.target).into_iter().filter(runs);
    let heads = heads.filter_map(|row| Some((row.name.as_str(), row.config.draft_algorithm()?)));
    let models = small_models_of(&file.models.target).into_iter().map(|row| (row.name.as_str(), "STANDALONE"));
    heads.chain(models).filter(|(name, _)| own != Some(name)).collect()
}

/// The published drafts as comments of a sweep file; empty if none is known.
fn proposal(file: &SweepFile) -> String {
    let published = published(file);
    if published.is_empty() {
        return String::new();
    }
    let SweepModels { draft, algorithm, .. } = &file.models;
    let own = (draft.as_str(), algorithm.as_str());
    let mut text = "# Published drafts that fit this target. To race them, remove models.draft and models.algorithm,\n\
                    # set search.strategy to \"grid\", and write at the end:\n"
        .to_owned();
    for (path, algorithm) in std::iter::once(own).chain(published) {
        let path = if path.is_empty() { String::new() } else { format!("# path = \"{path}\"\n") };
        text += &format!("#\n# [[drafts]]\n{path}# algorithm = \"{algorithm}\"\n");
    }
    text + "\n"
}

/// The sweep file as text, with the published drafts of its target as a proposal. Secrets are not
/// in it: the variables that hold them are inherited.
///
/// # Errors
/// When a number is too large for TOML.
pub fn sweep_text(name: &str, file: &SweepFile) -> anyhow::Result<String> {
    let mut public = file.clone();
    public.system.env.retain(|name, value| !secrets::is_secret_variable(name, value));
    let hidden: Vec<&str> =
        file.system.env.keys().filter(|name| !public.system.env.contains_key(*name)).map(String::as_str).collect();
    let mut text = format!("# The sweep that `spectune tune {name}` runs\n");
    if !hidden.is_empty() {
        text += &format!("# Set these variables before: {}\n", hidden.join(", "));
    }
    Ok(text + &proposal(&public) + &public.write()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_drafts_of_the_target_are_proposed_as_a_sweep() {
        let read = |text: &str| {
            SweepFile::read(&Source::new("sweep.toml", text)).unwrap_or_else(|finding| panic!("{}", finding.message))
        };
        let of = |target: &str| {
            read(&format!(
                "[models]\ntarget = '{target}'\ndraft = 'Tengyunw/qwen3_8b_eagle3'\nalgorithm = 'EAGLE3'\n\
                 [workload]\nprompts = 'p'\n"
            ))
        };
        let file = of("/models/Qwen3-8B");
        let text = sweep_text("run.sh", &file).expect("text");
        for draft in [
            "AngelSlim/Qwen3-8B_eagle3",
            "z-lab/Qwen3-8B-DFlash-b16",
            "deepseek-ai/dspark_qwen3_8b_block7",
            "Qwen/Qwen3-0.6B",
        ] {
            assert!(text.contains(&format!("# path = \"{draft}\"")), "{draft}: {text}");
        }
        assert!(text.contains("# path = \"Qwen/Qwen3-0.6B\"\n# algorithm = \"STANDALONE\""), "{text}");
        assert_eq!(text.matches("# path = \"Tengyunw/qwen3_8b_eagle3\"").count(), 1, "{text}");
        assert_eq!(read(&text), file, "they are comments");
        // Done as the comments say, it is a sweep of all of them.
        let raced: String = text
            .lines()
            .filter(|line| !line.starts_with("draft =") && !line.starts_with("algorithm ="))
            .filter_map(|line| {
                line.strip_prefix("# ").map_or(Some(line), |line| line.contains(['[', '=']).then_some(line))
            })
            .filter(|line| !line.contains("search.strategy"))
            .map(|line| format!("{line}\n"))
            .collect();
        let (drafts, tables) = raced.split_once("[models]").expect("tables");
        assert_eq!(read(&format!("[models]{tables}{drafts}")).drafts.len(), published(&file).len() + 1, "{raced}");
        assert!(!sweep_text("run.sh", &of("/models/unknown")).expect("text").contains("[[drafts]]"));
        // What no server can run, and what this engine does not read.
        let proposes = |kind: SystemKind, target: &str, draft: &str| {
            let mut file = of(target);
            file.system.kind = kind;
            published(&file).iter().any(|(name, _)| *name == draft)
        };
        let kinds = [SystemKind::Spectune, SystemKind::Sglang];
        let (plain, pickle) = ("deepseek-ai/dflash_qwen3_8b_block7", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B");
        assert_eq!(kinds.map(|kind| proposes(kind, "Qwen/Qwen3-8B", plain)), [true, false]);
        let llama = "meta-llama/Llama-3.1-8B-Instruct";
        assert_eq!(kinds.map(|kind| proposes(kind, llama, pickle)), [false, true]);
    }

    #[test]
    fn a_program_in_a_list_is_shown_as_words() {
        assert_eq!(words("sglang\", \"serve"), "sglang serve");
        assert_eq!(words(" vllm serve "), "vllm serve");
    }
}
