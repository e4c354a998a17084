//! What other programs write before the lines of a server, which tells servers in one log apart.

/// Names of vLLM's own processes, which it writes before its lines.
const VLLM_PROCESSES: [&str; 6] = ["APIServer", "ApiServer", "EngineCore", "Worker", "DPCoordinator", "DPSupervisor"];

/// What a word before a server's own words is.
#[derive(PartialEq)]
enum PrefixWord {
    /// It names the process, container or pod.
    Source,
    /// It differs from line to line, or says nothing about the server.
    Skipped,
    /// The server's own words begin with it.
    Own,
}

/// The process, container or pod that a line is of: `(Name pid=1)` of Ray, `name |` of Docker
/// Compose, `[pod/name]` of kubectl, `name[1]:` of the journal, `1:` of Slurm; empty for a line
/// without one.
pub(super) fn source_of(line: &str) -> String {
    let mut found = String::new();
    let mut rest = line.trim_start();
    while let Some((word, after)) = next(rest) {
        rest = after.trim_start();
        match kind(word, rest) {
            PrefixWord::Source => found += word,
            PrefixWord::Skipped => {}
            PrefixWord::Own => break,
        }
    }
    found
}

fn kind(word: &str, after: &str) -> PrefixWord {
    if word.starts_with('(') && word.contains("pid=") {
        let is_vllm = VLLM_PROCESSES.iter().any(|name| word[1..].starts_with(name));
        return if is_vllm { PrefixWord::Skipped } else { PrefixWord::Source };
    }
    let is_unit = |word: &str| word.ends_with("]:") && !word.starts_with('[');
    let is_task = word.strip_suffix(':').is_some_and(|number| number.parse::<u32>().is_ok());
    if word.starts_with("[pod/") || is_unit(word) || is_task || after.starts_with('|') {
        return PrefixWord::Source;
    }
    // The journal's `Nov 28` and the name of its host.
    let is_date = word.len() <= 3 && word.chars().all(char::is_alphanumeric);
    let is_host = after.split_whitespace().next().is_some_and(is_unit);
    if is_time(word) || word == "|" || is_date || is_host { PrefixWord::Skipped } else { PrefixWord::Own }
}

/// The first word of a text and what follows; what is in round brackets is one word.
fn next(text: &str) -> Option<(&str, &str)> {
    let end = match text.starts_with('(') {
        true => text.find(')').map(|at| at + 1),
        false => None,
    };
    let end = end.or_else(|| text.find(char::is_whitespace)).unwrap_or(text.len());
    (!text.is_empty()).then(|| text.split_at(end))
}

/// A date or a time without brackets.
fn is_time(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_digit()) && (word.contains(':') || word.matches('-').count() == 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_differ_and_times_do_not() {
        for (line, expected) in [
            ("[2026-11-28 21:35:01 TP0] Decode batch, #running-req: 8", ""),
            ("INFO 11-28 21:36:13 [loggers.py:310] Engine 000: Avg", ""),
            ("(APIServer pid=10670) INFO 11-28 21:36:13 [loggers.py:310] Engine 000: Avg", ""),
            ("(EngineCore_DP0 pid=246) INFO 03-01 11:11:18 [core.py:101] Initializing", ""),
            ("(SGLangEngine pid=100) [2026-11-28 21:35:01 TP0] Decode batch", "(SGLangEngine pid=100)"),
            (
                "(SGLangEngine pid=100, ip=10.0.0.2) [2026-11-28 21:35:01 TP0] Decode",
                "(SGLangEngine pid=100, ip=10.0.0.2)",
            ),
            ("(vLLMHttpServer pid=7) (EngineCore_DP0 pid=9) INFO 11-28 21:36:13", "(vLLMHttpServer pid=7)"),
            ("sglang-1  | [2026-11-28 21:35:01 TP0] Decode batch", "sglang-1"),
            ("qwen3.5-122    | (APIServer pid=1) INFO 03-01 11:11:05 [config.py:567] Padding", "qwen3.5-122"),
            ("sglang-1 | 2026-11-28T21:35:01.123Z [2026-11-28 21:35:01 TP0] Decode", "sglang-1"),
            ("[pod/sglang-0/server] [2026-11-28 21:35:01 TP0] Decode batch", "[pod/sglang-0/server]"),
            ("2026-11-28T21:35:01.123456789Z [2026-11-28 21:35:01 TP0] Decode batch", ""),
            ("Nov 28 21:35:01 node7 sglang[4242]: [2026-11-28 21:35:01] Decode batch", "sglang[4242]:"),
            ("3: [2026-11-28 21:35:01 TP0] Decode batch", "3:"),
            ("{\"log\":\"[2026-11-28 21:35:01] Decode batch\"}", ""),
            ("Decode batch. #running-req: 4 | and more", ""),
            ("", ""),
        ] {
            assert_eq!(source_of(line), expected, "{line}");
        }
    }
}
