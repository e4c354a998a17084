//! Compares the configuration that a server reports with what its launch resolves to.

use schemas::{flags::FLAGS, quoting::quoted, text::Source};
use serde_json::{Value as Json, json};

use super::{Resolved, view::plain};

/// A value of a launch that a server also reports.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedValue {
    /// SGLang's name of the value, with underscores.
    pub name: &'static str,
    /// What the launch resolves to; `None` if not known.
    pub resolved: Option<String>,
    /// Origin of the resolved value, with the place in the user's text.
    pub because: String,
    /// What the server runs.
    pub runs: String,
    /// Whether both are known and differ.
    pub differs: bool,
}

/// Maximum number of requests that the schedulers of a server run together: the sum over its
/// data-parallel ranks, each of which reports its own; `None` if one does not report it.
pub fn most_running(answer: &Json) -> Option<u64> {
    let states = answer["internal_states"].as_array()?;
    let each: Option<u64> = states.iter().map(|state| state["effective_max_running_requests_per_dp"].as_u64()).sum();
    each.filter(|sum| *sum > 0)
}

/// The value that a server reports. What its scheduler runs takes precedence over its arguments.
fn stated(answer: &Json, name: &str) -> Option<Json> {
    let state = &answer["internal_states"][0];
    let places: &[&Json] = match name {
        "max_running_requests" => {
            if let Some(most) = most_running(answer) {
                return Some(json!(most));
            }
            &[&state["max_running_requests"], &answer[name]]
        }
        // On the CPU there are no CUDA graphs, whatever the launch says.
        "cuda_graph_bs" if answer["device"] == "cpu" || answer["device"]["device"] == "cpu" => &[],
        "cuda_graph_bs" => &[&state["decode_cuda_graph_bs"], &answer["cuda_graph_bs_decode"], &answer["cuda_graph_bs"]],
        // The shape that an adaptive server currently drafts is not the one that it was started
        // with.
        "speculative_num_steps" | "speculative_eagle_topk" | "speculative_num_draft_tokens"
            if answer["speculative_adaptive"] == true =>
        {
            &[&answer[name]]
        }
        // The scheduler's own arguments were resolved last.
        _ => &[&state[name], &answer[name]],
    };
    places.iter().copied().find(|value| !value.is_null()).cloned()
}

/// Compares a resolved launch of SGLang with a server's answer to `/server_info`. Values that the
/// server does not report, or reports as `auto`, are skipped.
pub fn compare(resolved: &Resolved, source: &Source, answer: &Json) -> Vec<ComparedValue> {
    let mut all = Vec::new();
    for row in resolved.rows() {
        let runs = match (row.name, stated(answer, row.name)) {
            // A server that does not speculate reports this argument as null.
            ("speculative_algorithm", None) if answer.get("speculative_algorithm").is_some() => json!("off"),
            (_, Some(runs)) if runs != "auto" => runs,
            _ => continue,
        };
        let (value, because) = match &row.value {
            Some((value, origin)) => (Some(value), super::view::explained(origin, source)),
            None => (None, "not known from the launch".to_owned()),
        };
        let differs = value.is_some_and(|value| !same(row.name, value, &runs));
        all.push(ComparedValue { name: row.name, resolved: value.map(plain), because, runs: plain(&runs), differs });
    }
    all
}

fn same(name: &str, resolved: &Json, runs: &Json) -> bool {
    match (resolved.as_f64(), runs.as_f64()) {
        // Fractions of memory are rounded in the report.
        (Some(resolved), Some(runs)) => (resolved - runs).abs() <= 0.0005 * resolved.abs().max(1.0),
        _ if name == "speculative_algorithm" => {
            // NEXTN is another name for EAGLE with the target's own MTP layers.
            let word = |value: &Json| value.as_str().unwrap_or_default().to_uppercase().replace("NEXTN", "EAGLE");
            word(resolved) == word(runs)
        }
        _ if name == "dtype" => {
            plain(resolved).trim_start_matches("torch.") == plain(runs).trim_start_matches("torch.")
        }
        _ => plain(resolved) == plain(runs),
    }
}

/// The launch of a server from its answer: the command that it was started with, if it reports one,
/// else a command with its arguments as it resolved them.
pub fn launch_of(answer: &Json) -> Option<String> {
    match &answer["launch_command"] {
        Json::String(command) if !command.trim().is_empty() => return Some(command.clone()),
        Json::Array(words) if !words.is_empty() => {
            let words = words.iter().filter_map(Json::as_str).map(quoted);
            return Some(words.collect::<Vec<_>>().join(" "));
        }
        _ => {}
    }
    answer["model_path"].as_str()?;
    let program = if answer["engine"] == "spectune" { "spectune serve" } else { "python3 -m sglang.launch_server" };
    let mut words = vec![program.to_owned()];
    for flag in FLAGS {
        let value = &answer[flag.name.replace('-', "_").as_str()];
        let values: Vec<String> = match value {
            Json::Bool(true) => Vec::new(),
            Json::String(text) => vec![quoted(text)],
            Json::Number(number) => vec![number.to_string()],
            Json::Array(items) if !items.is_empty() => items.iter().map(plain).collect(),
            _ => continue,
        };
        words.push(format!("\\\n  --{}", flag.name));
        words.extend(values);
    }
    Some(words.join(" ") + "\n")
}

/// A text table of the compared values; differences are marked with `!`.
pub fn table(compared: &[ComparedValue]) -> String {
    let rows: Vec<[String; 5]> = compared
        .iter()
        .map(|one| {
            let resolved = one.resolved.clone().unwrap_or_else(|| "?".into());
            let mark = if one.differs { "!" } else { " " };
            [mark.into(), one.name.into(), resolved, one.runs.clone(), one.because.clone()]
        })
        .collect();
    let width = |column: usize, head: &str| {
        rows.iter().map(|row| row[column].chars().count()).chain([head.len()]).max().unwrap_or_default().min(40)
    };
    let head = ["", "", "resolved", "runs", "resolved because"].map(str::to_owned);
    let (names, resolveds, runnings) = (width(1, ""), width(2, "resolved"), width(3, "runs"));
    let mut text = String::new();
    for [mark, name, resolved, runs, because] in std::iter::once(&head).chain(&rows) {
        let line = format!("{mark:1} {name:names$}  {resolved:resolveds$}  {runs:runnings$}  {because}");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A JSON list of the compared values, each with `name`, `resolved`, `runs`, `differs` and
/// `because`.
pub fn to_json(compared: &[ComparedValue]) -> Json {
    let one = |one: &ComparedValue| json!({ "name": one.name, "resolved": one.resolved, "runs": one.runs, "differs": one.differs, "because": one.because });
    compared.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve;

    fn compared(text: &str, answer: &Json) -> Vec<ComparedValue> {
        let source = Source::new("run.sh", text);
        let parsed = crate::parse(&source, &crate::Options::default());
        let launch = parsed.launches.first().expect("a launch");
        let (version, given) = resolve::version_of(launch, Some("0.5.16".parse().expect("a version")));
        compare(&resolve::resolve(launch, version, given, None, None, None), &source, answer)
    }

    const LAUNCH: &str = "python3 -m sglang.launch_server --model-path m --speculative-algorithm EAGLE3 \
                          --speculative-draft-model-path d --speculative-num-steps 3 --speculative-eagle-topk 1 \
                          --speculative-num-draft-tokens 4 --max-running-requests 64 --mem-fraction-static 0.8";

    #[test]
    fn what_a_server_rewrote_is_stated() {
        let answer = json!({
            "speculative_algorithm": "EAGLE3", "speculative_num_steps": 5, "speculative_eagle_topk": 1, "dtype": "auto",
            "speculative_num_draft_tokens": 6, "max_running_requests": 64, "mem_fraction_static": 0.80001,
            "internal_states": [{"effective_max_running_requests_per_dp": 48}],
        });
        let all = compared(LAUNCH, &answer);
        let differing: Vec<&str> = all.iter().filter(|one| one.differs).map(|one| one.name).collect();
        assert_eq!(differing, ["speculative_num_steps", "speculative_num_draft_tokens", "max_running_requests"]);
        assert!(all.iter().all(|one| one.name != "dtype"));
        assert!(table(&all).contains("! speculative_num_steps"), "{}", table(&all));
    }

    #[test]
    fn data_parallel_ranks_run_requests_together() {
        let each = json!({"effective_max_running_requests_per_dp": 32});
        let of = |states: Json| {
            let answer = json!({"max_running_requests": 64, "internal_states": states});
            let all = compared(LAUNCH, &answer);
            let found = all.into_iter().find(|one| one.name == "max_running_requests").expect("a row");
            (found.runs, found.differs)
        };
        assert_eq!(of(json!([each, each])), ("64".to_owned(), false));
        assert_eq!(of(json!([each])), ("32".to_owned(), true));
        assert_eq!(of(json!([each, {}])), ("64".to_owned(), false), "one rank does not report it");
    }

    #[test]
    fn a_server_that_fell_back_to_no_speculation_differs() {
        let all = compared(LAUNCH, &json!({"speculative_algorithm": null, "page_size": 1}));
        assert_eq!((all[0].name, all[0].runs.as_str(), all[0].differs), ("speculative_algorithm", "off", true));
    }

    #[test]
    fn a_launch_is_put_together_from_an_answer() {
        let request = json!({"launch_command": LAUNCH});
        assert_eq!(launch_of(&request).as_deref(), Some(LAUNCH));
        let list = json!({"launch_command": ["python3", "-m", "sglang.launch_server", "--model-path", "a b"]});
        assert_eq!(launch_of(&list).as_deref(), Some("python3 -m sglang.launch_server --model-path 'a b'"));
        let arguments = json!({"model_path": "/m o", "speculative_num_steps": 3, "trust_remote_code": true,
                               "disable_radix_cache": false, "cuda_graph_bs": [1, 2], "draft": null});
        let text = launch_of(&arguments).expect("a launch");
        for part in ["--model-path '/m o'", "--speculative-num-steps 3", "--trust-remote-code", "--cuda-graph-bs 1 2"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("disable-radix-cache"), "{text}");
        assert_eq!(launch_of(&json!({"detail": "Not Found"})), None);
    }
}
