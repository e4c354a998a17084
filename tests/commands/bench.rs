//! `bench`: what it prints and what it refuses.

use tempfile::TempDir;

use super::{EAGLE3, TARGET, check, text};

#[test]
fn bench_refuses_lengths_and_budgets_that_its_shapes_do_not_have() {
    let base = ["bench", "--model-path", TARGET, "--batch-size", "1", "--input-len", "16", "--output-len", "12"];
    let draft = ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", EAGLE3];
    let with = |more: &[&str], words: &[&str]| check(&[&base[..], &draft, more].concat(), 2, words);
    with(&["--shapes", "3,2,6@30"], &["3,2,6@30", "a number from 1 to 4", "the tree 3,2,6"]);
    with(&["--shapes", "3,2,6@4.01"], &["a number from 1 to 4"]);
    with(&["--shapes", "none@2"], &["none@2", "a number from 1 to 1", "no speculation"]);
    with(&["--simulate-accept-length", "30"], &["--simulate-accept-length 30", "yields at most"]);
    let budget = ["--speculative-row-budget", "2.5"];
    with(
        &[&budget[..], &["--shapes", "none;3,2,6"]].concat(),
        &["--speculative-row-budget", "--shapes", "write 3,2,6~2.5"],
    );
}

#[test]
fn bench_refuses_flags_without_effect_before_it_loads_a_model() {
    let folder = TempDir::new().expect("a folder");
    let [trace, policies, times] = ["trace", "policies", "none/times"].map(|name| folder.path().join(name));
    let base = ["bench", "--model-path", TARGET];
    let refused = |more: &[&str], words: &[&str]| {
        let ran = check(&[&base[..], more].concat(), 2, words);
        assert!(ran.stdout.is_empty(), "{}", ran.stdout);
    };
    let rounds = ["--batch-size", "1", "--input-len", "16", "--output-len", "12"];
    for flags in [
        &["--finish", "95"][..],
        &["--abort"],
        &["--keep-contexts"],
        &["--median-len", "9"],
        &["--limit-drafts", "25:0"],
        &["--draw", "3"],
        &["--contexts", "64"],
        &["--points", "9"],
    ] {
        refused(&[&rounds[..], flags].concat(), &[flags[0], "has no effect here", "it needs"]);
    }
    let played = ["--simulate-acceptance", text(&trace)];
    let policies = ["--policies", text(&policies)];
    refused(&[&rounds[..], &played, &policies].concat(), &["--policies has no effect", "--rollout"]);
    let closed = [&played[..], &["--requests-per-user", "2", "--batch-size", "2", "--input-len", "16"]].concat();
    refused(&[&closed[..], &["--finish", "95"]].concat(), &["--finish has no effect", "--rollout"]);
    refused(&[&closed[..], &["--output-len", "9"]].concat(), &["--output-len has no effect"]);
    refused(&[&closed[..], &["--points", "9"]].concat(), &["--points has no effect", "--times-out"]);
    let rollout = [&played[..], &["--rollout", "4x2", "--input-len", "16"]].concat();
    refused(&[&rollout[..], &["--batch-size", "4"]].concat(), &["--batch-size has no effect"]);
    refused(&[&rollout[..], &["--abort"]].concat(), &["--abort has no effect", "--finish below 100"]);
    let timed = ["--times-out", text(&times), "--batch-size", "1"];
    refused(&timed, &["--times-out needs --batch-size and --contexts"]);
    let timed = [&timed[..], &["--contexts", "64"]].concat();
    refused(&[&timed[..], &["--points", "0"]].concat(), &["--points 0 is out of range"]);
    refused(&[&timed[..], &["--contexts", "0"]].concat(), &["--contexts 0 is out of range"]);
    for flags in [&["--json"][..], &["--repeats", "2"], &["--shapes", "none@1"], &["--requests-per-user", "2"]] {
        refused(&[&timed[..], flags].concat(), &["has no effect here", flags[0]]);
    }
    // What cannot be written is found before minutes of measurement.
    refused(&timed, &["cannot write", "none/times"]);
}

#[test]
fn bench_prints_the_fields_of_its_contract() {
    let arguments =
        ["bench", "--model-path", TARGET, "--batch-size", "1,3", "--input-len", "16", "--output-len", "12", "--json"];
    let lines = check(&arguments, 0, &[]).stdout;
    let objects: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(objects.iter().map(|one| one["batch_size"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(3)]);
    assert_eq!(objects[0]["accept_length"], 1.0, "a round without drafts yields one token");
    for name in [
        "output_tokens_per_s",
        "tokens_per_s_per_user",
        "round_ms",
        "accept_length",
        "simulated",
        "memory_floor_ms",
        "share_of_floor",
        "startup_s",
        "graph_capture_s",
        "fingerprint",
    ] {
        assert!(objects[0].get(name).is_some(), "{name}");
    }
    for (flag, value) in
        [("--batch-size", "0"), ("--batch-size", "99999999999"), ("--repeats", "0"), ("--input-len", "0")]
    {
        let base = ["bench", "--model-path", TARGET, "--output-len", "1"];
        let mut given = vec![("--batch-size", "1"), ("--input-len", "1")];
        given.retain(|(name, _)| *name != flag);
        given.push((flag, value));
        let given: Vec<&str> = given.into_iter().flat_map(|(name, value)| [name, value]).collect();
        let ran = check(&[&base[..], &given].concat(), 2, &[flag, value, "expected 1 to 1048576"]);
        assert!(ran.stdout.is_empty(), "{}", ran.stdout);
    }
}
