//! Scripts that assemble their launches.

use schemas::text::Source;

use super::super::{Options, parse, problems};

/// Each launch of a text: its environment, the arguments that it may also receive (`?`), and its
/// flags with their values.
fn launches(text: &str) -> Vec<String> {
    let parsed = parse(&Source::new("test.sh", text), &Options::default());
    let shown = |launch: &super::super::Launch| {
        let mut words: Vec<String> =
            launch.environment.iter().map(|(name, value)| format!("{name}={}", value.value.written())).collect();
        words.extend(launch.environment_is_open.then(|| "…".to_owned()));
        words.extend(launch.engine_version.iter().map(|version| format!("@{}", version.value)));
        words.extend(launch.perhaps.iter().map(|key| format!("{key:?}?")));
        for argument in &launch.arguments {
            words.extend((!argument.is_positional()).then(|| argument.flag.value.clone()));
            words.extend(argument.values.iter().map(|value| match value.value.known() {
                Some(text) => text.to_owned(),
                None => format!("<{}>", value.value.written()),
            }));
        }
        words.join(" ")
    };
    // Most texts name no model.
    let others = parsed.findings.iter().filter(|found| found.code != problems::WITHOUT_MODEL.code);
    let found = others.map(|finding| format!("{} {}", finding.code, finding.message));
    parsed.launches.iter().map(shown).chain(found).collect()
}

fn check(text: &str, expected: &[&str]) {
    assert_eq!(launches(text), expected, "{text}");
}

#[test]
fn an_array_that_a_branch_adds_to_is_one_launch_with_what_it_held() {
    check(
        "A=(--tp 2)\nif [ -n \"$X\" ]; then A+=(--enable-lora); fi\nA+=(--page-size 1)\n\
         sglang serve --model x \"${A[@]}\"",
        &["--model x --tp 2 --enable-lora --page-size 1"],
    );
    check("[ -n \"$X\" ] && A+=(--tp 2)\nsglang serve --model x ${A[@]}", &["--model x --tp 2"]);
    check("A=()\nif true; then A=(--tp 2); fi\nsglang serve --model x ${A[@]}", &["--model x --tp 2"]);
}

#[test]
fn each_way_of_a_block_is_a_launch() {
    check(
        "case \"$MODE\" in\n a) S=(--tp 2) ;;\n b|c) S=(--tp 4) ;;\n *) S=() ;;\nesac\n\
         sglang serve --model x ${S[@]} --page-size 1",
        &["--model x --tp 2 --page-size 1", "--model x --tp 4 --page-size 1"],
    );
    check(
        "if a; then S=(--tp 2) M=(--dtype half)\nelse S=(--tp 4); M=(--dtype auto); fi\nsglang serve ${S[@]} ${M[@]}",
        &["--tp 2 --dtype half", "--tp 4 --dtype auto"],
    );
    check("a && S=(--tp 2) || S=(--tp 4)\nsglang serve ${S[@]}", &["--tp 2", "--tp 4"]);
}

#[test]
fn branches_of_which_it_is_not_known_whether_they_meet_are_apart() {
    check(
        "A=(--model x --tp 1)\nif a; then A+=(--tp 2); fi\nif b; then A+=(--page-size 4); fi\nsglang serve ${A[@]}",
        &["PageSize? --model x --tp 1 --tp 2", "TpSize? --model x --tp 1 --page-size 4"],
    );
}

#[test]
fn words_that_a_branch_puts_in_the_place_of_others_are_never_next_to_them() {
    check(
        "P=(--tp 8 --dp 1)\nif a; then P=(--tp 8 --dp 8 --enable-lora); fi\nsglang serve --model-path m \"${P[@]}\"",
        &["--model-path m --tp 8 --dp 8 --enable-lora", "DpSize? EnableLora? TpSize? --model-path m --tp 8 --dp 1"],
    );
}

#[test]
fn lists_of_flags_that_are_stated_apart_are_launches_of_their_own() {
    check("--model-path m\n--tp 2\n", &["--model-path m --tp 2"]);
    check("# before\n--model-path m\n\n# after\n--page-size 4\n", &["--model-path m", "--page-size 4"]);
    check("# prefill\n--model-path m\n# decode\n--model-path n\n", &["--model-path m", "--model-path n"]);
}

#[test]
fn what_touches_a_placeholder_is_of_its_word() {
    check(
        "sglang serve --model-path m --dist-init-addr tcp://<node0-ip>:20000 --nnodes <n> --tp 2 > log",
        &["--model-path m --dist-init-addr <tcp://<node0-ip>:20000> --nnodes <<n>> --tp 2"],
    );
}

#[test]
fn clients_are_no_launches() {
    for module in ["test.few_shot_gsm8k", "bench_serving", "check_env"] {
        let found = launches(&format!("python3 -m sglang.{module} --num-questions 200 --port 30000"));
        assert!(found.len() == 1 && found[0].starts_with("LT02"), "{module}: {found:?}");
    }
    check("python -m sglang.bench_one_batch --model-path m --tp 2", &["--model-path m --tp 2"]);
}

#[test]
fn what_a_function_adds_is_there_below_it() {
    check("f() {\n A+=(--page-size 1)\n}\nA=(--model x)\nf\nsglang serve ${A[@]}", &["--model x --page-size 1"]);
    check("function f {\n A=(--tp 2)\n}\nf\nsglang serve --model x ${A[@]}", &["--model x --tp 2"]);
    check(
        "f() { A=(--tp 2); sglang serve ${A[@]}; }\ng() { A=(--tp 4); sglang serve ${A[@]}; }",
        &["--tp 2", "--tp 4"],
    );
}

#[test]
fn a_bare_variable_that_is_empty_is_no_word() {
    for text in
        ["X=\nsglang serve --tp 2 $X", "X=''\nsglang serve --tp 2 ${X}", "X=\nsglang serve --tp 2 ${X:+--dtype half}"]
    {
        check(text, &["--tp 2"]);
    }
    check("a && X=1 || X=\nsglang serve --tp 2 $X", &["--tp 2 <$X>"]);
    check("sglang serve --tp 2 ${EXTRA:-}", &["--tp 2 <${EXTRA:-}>"]);
    check(
        "X=\nsglang serve --tp 2 \"$X\"",
        &["--tp 2 ", "LT08 `` does not belong to a flag: `--tp` takes no more values"],
    );
}

#[test]
fn a_bare_variable_is_as_many_words_as_it_holds() {
    for text in [
        "A=\"--tp 2\"\nA=\"$A --page-size 1\"\nsglang serve $A",
        "A=\"--tp 2\"\nB=\"$A --page-size 1\"\nC=\"$B\"\nsglang serve $C",
        "sglang serve ${A:---tp 2 --page-size 1}",
        "M=1\nsglang serve ${M:+--tp 2 --page-size 1}",
        "C=\"sglang serve --tp 2\"\nC=\"$C --page-size 1\"\n$C",
        "C=\"sglang serve --tp 2\"\nC+=\" --page-size 1\"\neval \"$C\"",
        "sglang serve --tp 2 ${X:+--page-size 1}",
    ] {
        check(text, &["--tp 2 --page-size 1"]);
    }
    check(
        "C=\"sglang serve --tp 2\"\nif a; then C=\"$C --page-size 1\"; fi\neval $C",
        &["--tp 2 --page-size 1", "PageSize? TpSize? --tp 2"],
    );
    check("A='1 2'\nsglang serve --tp=$A", &["--tp <$A>"]);
}

#[test]
fn a_flag_is_known_where_its_value_is_not() {
    check("sglang serve --tp=$T --page-size=$(f x) --$FLAG", &["--tp <$T> --page-size <$(f x)> <--$FLAG>"]);
}

#[test]
fn what_stands_behind_a_condition_may_not_have_run() {
    check("[ a ] || T=4\nsglang serve --tp $T", &["--tp <$T>"]);
    check("cd x && T=4 && sglang serve --tp $T", &["--tp 4"]);
    check("if a; then export N=1; fi\nsglang serve --tp 2", &["N=1 --tp 2"]);
    check("if a; then export N=1; else export N=2; fi\nsglang serve --tp 2", &["N=$N --tp 2"]);
    check("if a; then export N=1; else sglang serve --tp 2; fi", &["N=$N --tp 2"]);
}

#[test]
fn the_environment_is_what_containers_and_jobs_set_too() {
    for before in ["docker run -e N=1 i", "docker run --env N=1 i", "podman run --env=N=1 i", "srun --export=ALL,N=1"] {
        check(&format!("{before} sglang serve --tp 2"), &["N=1 --tp 2"]);
    }
    check(
        "J='{\"env_vars\": {\"N\": \"1\"}}'\nray job submit --runtime-env-json=\"$J\" -- sglang serve --tp 2",
        &["N=1 --tp 2"],
    );
    check("docker run -e N i sglang serve --tp 2", &["N=$N --tp 2"]);
    for before in [
        "docker run --env-file f i",
        "ray job submit --runtime-env-json=\"$J\" --",
        "ray job submit --runtime-env f --",
    ] {
        check(&format!("{before} sglang serve --tp 2"), &["… --tp 2"]);
    }
}

#[test]
fn a_variable_that_is_unset_is_none_of_the_environment() {
    check("export N=1 M=2\nunset -v N\nsglang serve --tp 2", &["M=2 --tp 2"]);
    check("export N=1\nunset -f N\nsglang serve --tp 2", &["N=1 --tp 2"]);
    check("export N=1\nif a; then unset N; fi\nsglang serve --tp 2", &["N=$N --tp 2"]);
    check("export N=1\n(unset N; sglang serve --tp 2)", &["N=$N --tp 2"]);
    check("export N=1\nunset N\nexport N=3\nsglang serve --tp $N", &["N=3 --tp 3"]);
    check("N=1\nunset N\nsglang serve --tp $N", &["--tp <$N>"]);
    for before in ["env -u N", "env --unset=N", "exec env -u N -u K"] {
        check(&format!("export N=1 M=2\n{before} sglang serve --tp 2"), &["M=2 --tp 2"]);
    }
}

#[test]
fn the_version_is_the_one_of_the_image_or_the_requirement() {
    check("docker run lmsysorg/sglang:v0.5.9-cu129 sglang serve --tp 2", &["@0.5.9 --tp 2"]);
    check("pip install \"sglang[all]==0.5.9\"\nsglang serve --tp 2", &["@0.5.9 --tp 2"]);
    check("pip install sglang==0.5.9\npip install sglang==0.5.6\nsglang serve --tp 2", &["--tp 2"]);
}

#[test]
fn what_is_said_or_looked_for_is_not_run() {
    for text in [
        "echo \"Usage: $0 --model-path PATH [--speculative-algorithm EAGLE3]\"",
        "log \"starting with args: --speculative-algorithm EAGLE3\"",
        "say_so \"Launching: python3 -m sglang.launch_server --model-path y\"",
        "pkill -f \"sglang.launch_server --model-path\"",
        "ps aux | grep -- \"--speculative-algorithm\"",
        "case $1 in --model-path) M=$2 ;; --speculative-algorithm) S=$2 ;; esac",
        "while [ $# -gt 0 ]; do\n  case \"$1\" in\n    # which\n    \
         --model-path) M=$2; shift ;;\n    (--tp) T=$2 ;;&\n    *) exit ;;\n  esac\ndone",
    ] {
        check(&format!("{text}\nsglang serve --tp 2"), &["--tp 2"]);
    }
    check(
        "run \"sglang serve --tp 2\"\nssh host \"./start --speculative-num-steps 3\"",
        &["--tp 2", "--speculative-num-steps 3"],
    );
}

#[test]
fn a_quoted_command_is_left_for_a_variable() {
    check(
        "M='--dtype half'\nsrun bash -c 'sglang serve --tp 2 '\"$M\"' --page-size 1'",
        &["--tp 2 --dtype half --page-size 1"],
    );
    check("M=x\nsrun bash -c 'sglang serve --model '$M' --page-size 1'", &["--model x --page-size 1"]);
    check("bash -c 'sglang serve --tp 2 '\"--dtype half\"' --page-size 1'", &["--tp 2 --dtype half --page-size 1"]);
    check("M=x\nbash -c \"sglang serve --model \"$M\" --page-size 1\"", &["--model x --page-size 1"]);
}

#[test]
fn a_comment_or_an_empty_line_behind_a_backslash_ends_the_command() {
    let ends = "LT04 the command ends here, so the flags below are not part of it";
    for between in ["# a note", "", "  # --dtype half \\"] {
        check(&format!("sglang serve --tp 2 \\\n{between}\n  --page-size 1"), &["--tp 2 --page-size 1", ends]);
    }
    check("sglang serve --tp 2 \\\n  --page-size 1", &["--tp 2 --page-size 1"]);
}

#[test]
fn where_a_number_must_be_a_word_is_none() {
    for (flag, value) in [("--tp", "two"), ("--tp", "4.0"), ("--tp", "1__0"), ("--mem-fraction-static", "0.8.5")] {
        check(
            &format!("sglang serve {flag} {value}"),
            &[&format!("{flag} {value}"), &format!("LT13 `{flag}` takes a number, but got `{value}`")],
        );
    }
    for good in [
        "--tp 1_0",
        "--tp +2",
        "--tp $T",
        "--mem-fraction-static 1e-1",
        "--context-length 8k",
        "--tp ...",
        "--tp N",
        "--cuda-graph-bs {1..4}",
    ] {
        assert_eq!(launches(&format!("sglang serve {good}")).len(), 1, "{good}");
    }
}

#[test]
fn a_share_just_above_the_whole_is_no_percentage_and_no_limit_is_below_zero() {
    let helps = |line: &str| {
        let parsed = parse(&Source::new("test.sh", line), &Options::default());
        let of_values = parsed.findings.into_iter().filter(|finding| finding.code == "LT13");
        of_values.map(|finding| (finding.message.clone(), finding.help.clone())).collect::<Vec<_>>()
    };
    let share = helps("sglang serve --model-path m --mem-fraction-static 1.7");
    assert_eq!(share.len(), 1);
    assert!(share[0].0.contains("a share of at most 1, but got `1.7`") && share[0].1.is_none(), "{share:?}");
    let percent = helps("sglang serve --model-path m --mem-fraction-static 85");
    assert_eq!(percent[0].1.as_deref(), Some("write `--mem-fraction-static 0.85`"));
    let slime = "python train.py --hf-checkpoint m --sglang-speculative-algorithm EAGLE3";
    let both = helps(&format!("{slime} --sglang-mem-fraction-static 1.7 --sglang-max-running-requests -5"));
    assert_eq!(both.len(), 2, "{both:?}");
    assert!(both[1].0.contains("`--sglang-max-running-requests` takes a number of at least 1, but got `-5`"));
    assert!(helps("sglang serve --model-path m --max-running-requests 8 --max-total-tokens 4096").is_empty());
}

#[test]
fn another_word_is_no_slip_of_the_pen() {
    let meant = |flag: &str| {
        let parsed = parse(&Source::new("test.sh", format!("sglang serve {flag}")), &Options::default());
        parsed.findings.first().and_then(|finding| finding.help.clone())
    };
    assert_eq!(meant("--enable-mtp"), None);
    for (flag, known) in [("--tp-sise", "tp-size"), ("--speculative-eagle-tokp", "speculative-eagle-topk")] {
        assert_eq!(meant(flag), Some(format!("write `--{known}`")));
    }
}

#[test]
fn what_a_config_file_may_hold_is_not_missing() {
    let text = "sglang serve --config server.yaml --model-path x";
    let parsed = parse(&Source::new("test.sh", text), &Options::default());
    assert_eq!(parsed.launches.first().map(super::super::Launch::is_complete), Some(false));
}

#[test]
fn the_variable_of_a_loop_has_its_only_value_or_the_one_that_is_given() {
    let text = "for MODEL in /m/target; do\n  for TP in 2 4; do\n    sglang serve --model-path $MODEL --tp $TP\n  done\ndone\n\
                serve() {\n  local port=$1\n  sglang serve --model-path m --port $port\n}\nserve 1\n";
    let words = |fixed: &[(&str, &str)]| {
        let fixed = fixed.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let variables = Some(std::sync::Arc::new(crate::Variables { fixed, ..Default::default() }));
        let parsed = parse(&Source::new("run.sh", text), &Options { variables, ..Options::default() });
        let values = parsed.launches.iter().flat_map(|launch| &launch.arguments).flat_map(|argument| &argument.values);
        values.map(|value| value.value.written().to_owned()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(words(&[]), "/m/target $TP m $port");
    assert_eq!(words(&[("TP", "4"), ("port", "8000")]), "/m/target 4 m 8000");
}
