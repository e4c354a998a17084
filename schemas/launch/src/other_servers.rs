//! Flags in tests and pages that are another server's: what stands before them names it.

use schemas::text::{Source, Span};

use super::{
    Launch, Launcher, Parsed,
    context::{TextContext, TextForm},
    images, problems,
    programs::{self, ProgramRole},
};

/// Names of the engines and of programs that start them, in lower case.
const OURS: [&str; 6] = ["miles", "sgl", "sglang", "slime", "spectune", "vllm"];

/// Names with fewer letters are words of other things too.
const SHORTEST: usize = 4;

/// How far before a launch a name is looked for, in bytes.
const FARTHEST: usize = 1 << 14;

/// Drops launches without a known program from tests and pages where the last server that is named
/// before them is another one.
pub fn drop_theirs(source: &Source, context: &TextContext, parsed: &mut Parsed) {
    if !matches!(context.form, TextForm::Page | TextForm::ShellBlock | TextForm::Test) {
        return;
    }
    let is_theirs = |launch: &Launch| {
        let is_nameless = launch.launcher == Launcher::Wrapper || launch.program.is_empty();
        is_nameless
            && launch.callee.is_none()
            && names_other(source.text().get(..launch.span.start).unwrap_or_default())
    };
    let (theirs, own): (Vec<Launch>, Vec<Launch>) =
        std::mem::take(&mut parsed.launches).into_iter().partition(is_theirs);
    parsed.launches = own;
    let is_in = |launch: &Launch, span: Span| launch.span.start <= span.start && span.start <= launch.span.end;
    let launches = &parsed.launches;
    parsed.findings.retain(|found| {
        let is_own = launches.iter().any(|launch| is_in(launch, found.span));
        is_own || !theirs.iter().any(|launch| is_in(launch, found.span))
    });
    if parsed.launches.is_empty() && !theirs.is_empty() {
        parsed.findings.push(problems::no_launch(source));
    }
}

/// Whether the last server that a text names is another one.
fn names_other(text: &str) -> bool {
    let start = (text.len().saturating_sub(FARTHEST)..text.len()).find(|at| text.is_char_boundary(*at));
    let near = text.get(start.unwrap_or_default()..).unwrap_or_default().to_ascii_lowercase();
    let words = near.rsplit(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_' && letter != '-');
    let named = words.filter(|word| !word.is_empty()).find_map(|word| {
        // `sglang_router`, `tokenspeed-smg`: the first part names the server.
        let first = word.split(['_', '-']).next().unwrap_or_default();
        if OURS.contains(&first) {
            return Some(false);
        }
        let is_other = |name: &str| programs::has(name, ProgramRole::Engine) || images::is_other_engine(name);
        [word, first].iter().any(|name| name.len() >= SHORTEST && is_other(name)).then_some(true)
    });
    named == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, parse};

    fn check(name: &str, text: &str, launches: usize) {
        let parsed = parse(&Source::new(name, text), &Options::default());
        assert_eq!(parsed.launches.len(), launches, "{text}");
    }

    #[test]
    fn flags_of_another_server_are_no_launch() {
        let list = "args = [\"--model-path\", \"m\", \"--speculative-algorithm\", \"EAGLE3\", \"--speculative-num-steps\", \"3\"]\n";
        check("test_server.py", &format!("from sglang.test import popen_launch_server\n{list}"), 1);
        check("test_server.py", &format!("from tokenspeed.test import popen_launch_server\n{list}"), 0);
        check("server.py", &format!("from tokenspeed.test import popen_launch_server\n{list}"), 1);
        let block =
            "```bash\n./serve.sh --model-path m --speculative-algorithm EAGLE3 --speculative-num-steps 3\n```\n";
        check("a.md", &format!("# SGLang\n{block}"), 1);
        check("a.md", &format!("# SGLang\nfast\n# TokenSpeed\n{block}"), 0);
        check("a.md", &format!("# TokenSpeed\nfast\n# SGLang\n{block}"), 1);
        let own = "```bash\nsglang serve --model-path m --speculative-algorithm EAGLE3\n```\n";
        check("a.md", &format!("# TokenSpeed\n{own}"), 1);
    }
}
