//! `diagnose`: logs on standard input.

use std::fs;

use tempfile::TempDir;

use super::run_with;

#[test]
fn a_log_is_diagnosed_from_standard_input() {
    let report = |accept: &str, rate: f64| {
        format!(
            "[2026-11-28 21:36:04 TP0] Decode batch, #running-req: 32, #token: 9, token usage: 0.03, {accept}cuda graph: True, \
             gen throughput (token/s): {rate}, #queue-req: 0\n"
        )
    };
    let with = report("accept len: 2.00, ", 1600.0).repeat(4);
    let folder = TempDir::new().expect("a folder");
    let plain = folder.path().join("plain.log");
    let plain = plain.to_str().expect("a path");
    fs::write(plain, report("", 3200.0).repeat(4)).expect("a file");
    let promise = ["--against", plain, "--promised-speed-up", "1.5", "--promised-accept-length", "3"];
    let ran = run_with(&[&["diagnose", "-"][..], &promise].concat(), &with);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    for expected in [
        "0.50× as fast; accept length 2.00, a round takes 4.00 times",
        "1.50×  acceptance",
        "2.00×  rounds",
        "3.00×  together",
        "speculation is slower than none",
    ] {
        assert!(ran.stdout.contains(expected), "{expected}: {}", ran.stdout);
    }
    let json = run_with(&["diagnose", "-", "--json"], &with);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).expect("it is JSON");
    assert_eq!((&json["loads"][0]["round_ms"], json["against"].as_array().map(Vec::len)), (&40.0.into(), Some(0)));
    assert_eq!((&json["engine"], &json["speculates"]), (&"SGLang".into(), &true.into()));
    // Loads that differ are not compared, and that is said.
    let other = with.replace("#running-req: 32", "#running-req: 8");
    let apart = run_with(&["diagnose", "-", "--against", plain], &other);
    let expected = "the loads of the two logs differ (8 running requests with speculation, 32 without";
    assert!(apart.stdout.contains(expected), "{}", apart.stdout);
    let short = run_with(&["diagnose", "-"], &report("accept len: 2.00, ", 1600.0));
    assert!(
        short.stdout.contains("Too few reports to say") && !short.stdout.contains("Nothing here"),
        "{}",
        short.stdout
    );
    let vllm = "INFO 11-28 21:36:13 [loggers.py:310] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation \
                throughput: 9.0 tokens/s, Running: 4 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%\n";
    let both = run_with(&["diagnose", "-"], &format!("{with}{vllm}"));
    assert!(both.stderr.contains("1 report of vLLM too, which are left out"), "{}", both.stderr);
    let address = run_with(&["diagnose", "127.0.0.1:30000"], "");
    assert!(address.code == Some(2) && address.stderr.contains("give http://127.0.0.1:30000"), "{}", address.stderr);
    let none = run_with(&["diagnose", "-"], "INFO: ready\n");
    assert_eq!(none.code, Some(2));
    assert!(none.stderr.contains("reports no rounds"), "{}", none.stderr);
    let twice = run_with(&["diagnose", plain, "--against", "-"], &with);
    assert!(twice.stderr.contains("speculates too"), "{}", twice.stderr);
}

#[test]
fn a_log_of_several_starts_and_ranks_is_diagnosed_one_start_at_a_time() {
    let start = |steps: usize, rate: f64| {
        let ranks: String = (0..2)
            .map(|rank| {
                format!(
                    "[2026-11-28 21:36:04 DP{rank} TP{rank}] Decode batch, #running-req: 8, #token: 9, token usage: 0.03, accept \
                     len: 2.00, cuda graph: True, gen throughput (token/s): {rate}, #queue-req: 0\n"
                )
            })
            .collect();
        format!(
            "[2026-11-28 21:34:48] server_args=ServerArgs(speculative_algorithm='EAGLE3', speculative_num_steps={steps}, \
             speculative_eagle_topk=1, speculative_num_draft_tokens={})\n[2026-11-28 21:34:58 DP0 TP0] \
             max_total_num_tokens=400000, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=48, \
             context_len=8192, available_gpu_mem=6.56 GB\n{}",
            steps + 1,
            ranks.repeat(4)
        )
    };
    let text = start(3, 1600.0) + &start(5, 800.0);
    let last = run_with(&["diagnose", "-"], &text);
    assert!(last.stderr.contains("2 starts"), "{}", last.stderr);
    for expected in [
        "EAGLE3 (5,1,6), at most 48 requests at once on each; 8 reports of 2 ranks or engines; all figures are those of one",
        " 800    2.00 ",
    ] {
        assert!(last.stdout.contains(expected), "{expected}: {}", last.stdout);
    }
    let first = run_with(&["diagnose", "-", "--start", "1"], &text);
    assert!(first.stdout.contains("EAGLE3 (3,1,4)") && first.stdout.contains(" 1600    2.00 "), "{}", first.stdout);
    let none = run_with(&["diagnose", "-", "--start", "3"], &text);
    assert_eq!(none.code, Some(2));
    assert!(none.stderr.contains("has reports of 2 starts"), "{}", none.stderr);
    let silent = text.replace("accept len: 2.00, ", "");
    let folder = TempDir::new().expect("a folder");
    let at = folder.path().join("silent.log");
    fs::write(&at, silent).expect("a file");
    let against = run_with(&["diagnose", "-", "--against", at.to_str().expect("a path")], &text);
    assert!(against.stderr.contains("speculates too"), "{}", against.stderr);
    let packed = folder.path().join("server.log.gz");
    fs::write(&packed, [0x1f, 0x8b, 8, 0]).expect("a file");
    let packed = run_with(&["diagnose", packed.to_str().expect("a path")], "");
    assert_eq!(packed.code, Some(2));
    assert!(packed.stderr.contains("gzip -dk"), "{}", packed.stderr);
    let piped = run_with(&["diagnose", "-"], "BZh91AY&SY");
    assert!(piped.code == Some(2) && piped.stderr.contains("`bzip2 -dc |`"), "{}", piped.stderr);
}
