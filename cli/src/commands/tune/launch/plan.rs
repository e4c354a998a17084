//! What is printed before a launch is measured: how its flags are measured, and what is not varied.

use launch::Launch;
use schemas::{engines::Engine, secrets, sweep::SweepFile, text::Source};
use tuner::from_launch::LaunchSweep;

use super::needs::Needs;

/// The widest column of the table of flags.
const WIDEST: usize = 60;

/// The flags that are not measured as the launch has them, and what is not varied.
pub fn table(source: &Source, launch: &Launch, plan: &LaunchSweep, refused: &[String], needs: &Needs) -> String {
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
    lines.push("the draft: try another one with --draft".into());
    lines.extend((launch.engine == Engine::Vllm).then(|| "trees: vLLM drafts chains".into()));
    if plan.file.system.address.is_some() {
        lines.push("host and port: the start command sets them".into());
    }
    lines
}

/// The sweep file as text. Secrets are not in it: the variables that hold them are inherited.
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
    Ok(text + &public.write()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_in_a_list_is_shown_as_words() {
        assert_eq!(words("sglang\", \"serve"), "sglang serve");
        assert_eq!(words(" vllm serve "), "vllm serve");
    }
}
