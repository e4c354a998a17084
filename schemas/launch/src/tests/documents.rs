//! Launches in here-documents.

use schemas::{diagnostic::Edit, flags::Key, text::Source, version::EngineVersion};

use super::super::{Launch, Options, parse, problems};

const VERSION: EngineVersion = EngineVersion::new(0, 5, 23);

/// Each launch of a text: the line and column of its anchor, its environment, and its flags with
/// their values (unknown values in angle brackets); then the findings about the text.
fn launches(text: &str) -> Vec<String> {
    let source = Source::new("test.sh", text);
    let at = |offset: usize| {
        let position = source.position(offset);
        format!("{}:{}", position.line, position.column)
    };
    let parsed = parse(&source, &Options::default());
    let shown = |launch: &Launch| {
        let mut words = vec![at(launch.anchor.start)];
        words.extend(launch.environment.iter().map(|(name, value)| match value.value.known() {
            Some(value) => format!("{name}={value}"),
            None => format!("{name}=<{}>", value.value.written()),
        }));
        words.extend(launch.environment_is_open.then(|| "…".to_owned()));
        words.extend(launch.engine_version.iter().map(|version| format!("@{}", version.value)));
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
    let found = others.map(|found| format!("{} {}", found.code, at(found.span.start)));
    parsed.launches.iter().map(shown).chain(found).collect()
}

fn check(text: &str, expected: &[&str]) {
    assert_eq!(launches(text), expected, "{text}");
}

/// Checks that a text has only its own launch, none from a document.
fn check_unread(text: &str) {
    check(&format!("{text}\nsglang serve --tp 2"), &[&format!("{}:1 --tp 2", text.lines().count() + 1)]);
}

#[test]
fn what_a_document_runs_is_a_launch() {
    for opener in [
        "cat > run.sh <<'EOF'",
        "cat <<EOF > run.sh",
        "sudo tee /opt/run.sh >/dev/null <<EOF",
        "bash <<EOF",
        "ssh host bash <<EOF",
        "ssh host <<-EOF 2>&1 | tee log.txt",
        "docker exec -i c bash -s <<'EOF'",
        "sbatch <<\"EOF\"",
        "cat <<EOF | ssh host 'bash -s'",
    ] {
        check(&format!("{opener}\nset -e\nsglang serve --tp 2\nEOF\n"), &["3:1 --tp 2"]);
    }
    check(
        "cat <<A > a.sh; cat > b.sh <<B\nsglang serve --tp 2\nA\nsglang serve --tp 4\nB\n",
        &["2:1 --tp 2", "4:1 --tp 4"],
    );
    check("cat <<EOF |\nsglang serve --tp 2\nEOF\nbash", &["2:1 --tp 2"]);
    check("cat > run <<EOF\n#!/bin/bash\nsglang serve --tp 2\nEOF", &["3:1 --tp 2"]);
    check("f() {\n  cat > \"$DIR/run.sh\" <<EOF\nsglang serve --tp 2\nEOF\n}", &["3:1 --tp 2"]);
}

#[test]
fn a_text_that_nothing_runs_is_none() {
    for opener in [
        "cat <<EOF",
        "cat >&2 <<EOF",
        "cat 2> run.sh <<EOF",
        "cat > README <<EOF",
        "cat > notes.txt <<EOF",
        "cat > run.json <<EOF",
        "cat > run.py <<EOF",
        "python3 - <<EOF",
        "bash run.sh <<EOF",
        "while read line; do x; done <<EOF",
        "read -r -d '' USAGE <<EOF",
    ] {
        check_unread(&format!("{opener}\nUsage:\nsglang serve --model-path x --tp 4\nEOF"));
    }
}

#[test]
fn a_quoted_delimiter_leaves_the_body_to_its_own_shell() {
    let outer = "T=2\nexport P=4\n";
    let body = "sglang serve --tp $T --page-size \"$P\" --dtype '$D'";
    check(&format!("{outer}bash <<'EOF'\n{body}\nEOF"), &["4:1 P=<$P> --tp <$T> --page-size <\"$P\"> --dtype $D"]);
    check(&format!("{outer}bash <<\\EOF\nT=8\n{body}\nEOF"), &["5:1 P=<$P> --tp 8 --page-size <\"$P\"> --dtype $D"]);
}

#[test]
fn in_others_variables_of_the_script_around_are_filled_in() {
    check("T=2\nbash <<EOF\nsglang serve --tp $T --page-size '${P:-4}'\nEOF", &["3:1 --tp 2 --page-size 4"]);
    check("bash <<EOF\nT=2\nsglang serve --tp $T --page-size \\$T\nEOF", &["3:1 --tp <$T> --page-size 2"]);
    check("bash <<EOF\nP=2\nsglang serve --tp '$T' --page-size \\$P\nEOF", &["3:1 --tp <'$T'> --page-size 2"]);
    check("A=\"--tp 2\"\nB=( --page-size 4 )\nbash <<EOF\nsglang serve $A ${B[@]}\nEOF", &["4:1 --tp 2 --page-size 4"]);
    check("if a; then T=2; fi\nbash <<EOF\nsglang serve --tp $T $MORE\nEOF", &["3:1 --tp <$T> <$MORE>"]);
    check(
        "bash <<EOF\nsglang serve --tp=$T --cuda-graph-bs $(seq 1 4) \\$(seq 1 2)\nEOF",
        &["2:1 --tp <$T> --cuda-graph-bs <$(seq 1 4)> 1 2"],
    );
    check(
        "M=x\nssh host <<EOF\nvllm serve y --speculative-config '{\"model\": \"$M\"}' --a '{\"b\": \"$N\"}'\nEOF",
        &["3:1 y --speculative-config {\"model\": \"x\"} --a <'{\"b\": \"$N\"}'>", "LT07 3:1"],
    );
}

#[test]
fn tabs_go_where_the_shell_takes_them() {
    check(
        "cat > a.sh <<-EOF\n\t\tsglang serve \\\n\t\t\t--tp 2 \\\n\t--page-size 4\n\tEOF\n",
        &["2:3 --tp 2 --page-size 4"],
    );
}

#[test]
fn documents_in_documents_are_read() {
    check(
        "ssh host bash <<'A'\ncat > run.sh <<'B'\nsglang serve --tp 2\nB\nsglang serve --tp 4\nA\nsglang serve --tp 8",
        &["3:1 --tp 2", "5:1 --tp 4", "7:1 --tp 8"],
    );
    let nested = |depth: usize| {
        let open: String = (0..depth).map(|level| format!("bash <<'E{level}'\n")).collect();
        let close: String = (0..depth).rev().map(|level| format!("E{level}\n")).collect();
        launches(&format!("{open}sglang serve --tp 2\n{close}")).len()
    };
    assert_eq!(nested(3), 1);
    assert!(launches(&"cat > a.sh <<A\nA\n".repeat(10_000)).len() == 1);
    assert!(nested(4) == 1 && nested(300) == 1, "too deep: one finding that there is no launch");
}

#[test]
fn manifests_are_read_as_yaml() {
    let manifest = "spec:\n  containers:\n  - image: lmsysorg/sglang:v0.5.9\n    command: [python3, -m, sglang.launch_server]\n    \
                    args: [\"--tp\", \"2\", --page-size=$P]\n";
    for opener in ["cat <<EOF | kubectl apply -f -", "kubectl apply -f - <<'EOF'", "cat > pod.yaml <<EOF"] {
        check(&format!("{opener}\n{manifest}EOF\n"), &["5:28 @0.5.9 --tp 2 --page-size <$P>"]);
    }
    check(&format!("P=4\nkubectl apply -f - <<EOF\n{manifest}EOF\n"), &["6:28 @0.5.9 --tp 2 --page-size 4"]);
    check(
        "cat > c.yaml <<EOF\nmodel-path: $M\nspeculative-algorithm: EAGLE\nEOF",
        &["2:1 --model-path <$M> --speculative-algorithm EAGLE"],
    );
    check_unread("kubectl apply -f - <<EOF\nkind: [ConfigMap\nEOF");
}

#[test]
fn what_is_around_a_document_tells_version_and_environment() {
    check(
        "docker run -i -e N=1 lmsysorg/sglang:v0.5.9 bash -s <<EOF\nexport M=2\nsglang serve --tp 2\nEOF",
        &["3:1 M=2 N=1 @0.5.9 --tp 2"],
    );
    check("pip install sglang==0.5.9\nexport N=1\nbash <<EOF\nsglang serve --tp 2\nEOF", &["4:1 N=<$N> @0.5.9 --tp 2"]);
    check("docker run -i --env-file f i bash <<EOF\nsglang serve --tp 2\nEOF", &["2:1 … --tp 2"]);
}

#[test]
fn what_is_amiss_in_a_document_has_its_place() {
    check("cat > a.sh <<-'EOF'\n\tsglang serve --tp two\n\tEOF", &["2:2 --tp two", "LT13 2:20"]);
    check(
        "cat > a.sh <<'EOF'\nsglang serve --tp 2 \\ \n  --page-size 4\nEOF",
        &["2:1 --tp 2 --page-size 4", "LT04 2:21"],
    );
    check("cat > a.sh <<'EOF'\necho \"\nEOF\nsglang serve --tp 2", &["4:1 --tp 2"]);
}

/// Checks the text after an edit.
fn check_edit(text: &str, edit: impl Fn(&Launch) -> Edit, expected: &str) {
    let parsed = parse(&Source::new("test.sh", text), &Options::default());
    let Edit { span, replacement } = edit(parsed.launches.first().expect("a launch"));
    let mut edited = text.to_owned();
    edited.replace_range(span.range(), &replacement);
    assert_eq!(edited, expected, "{text}");
}

#[test]
fn edits_reach_the_bytes_that_the_user_wrote() {
    let set = |launch: &Launch| launch.set(Key::TpSize, VERSION, "8");
    let add = |launch: &Launch| launch.add(Key::Dtype, VERSION, "half");
    let remove = |launch: &Launch| launch.remove(Key::TpSize).expect("given");
    let text = "ä\ncat > a.sh <<-'EOF'\n\tsglang serve \\\n\t\t--model-path x \\\n\t\t--tp 2\n\tEOF\n";
    check_edit(text, set, &text.replace("--tp 2", "--tp 8"));
    check_edit(text, add, &text.replace("--tp 2", "--tp 2 \\\n\t\t--dtype half"));
    check_edit(text, remove, &text.replace(" \\\n\t\t--tp 2", ""));
    let text = "T=2\nbash <<EOF\nsglang serve --page-size \\$P --tp $T # \\$\nEOF\n";
    check_edit(text, set, &text.replace("--tp $T", "--tp 8"));
    check_edit(text, add, &text.replace("--tp $T", "--tp $T --dtype half"));
    check_edit(text, remove, &text.replace(" --tp $T", ""));
    let text = "A=(\n  --tp 2 # two\n  --page-size 4\n)\nbash <<EOF\nsglang serve ${A[@]} --disable-radix-cache\nEOF\n";
    check_edit(text, set, &text.replace("--tp 2", "--tp 8"));
    check_edit(text, add, &text.replace("cache", "cache --dtype half"));
    check_edit(text, remove, &text.replace("--tp 2", ""));
    let text = "A=\"--tp 2\"\nbash <<EOF\nsglang serve $A\nEOF\n";
    check_edit(text, set, &text.replace("--tp 2", "--tp 8"));
    check_edit(text, add, &text.replace("--tp 2", "--tp 2 --dtype half"));
    let text = "kubectl apply -f - <<EOF\nargs:\n- --model-path=$M\n- --tp\n- \"2\"\nEOF\n";
    check_edit(text, set, &text.replace("\"2\"", "\"8\""));
    check_edit(text, add, &text.replace("\"2\"", "\"2\"\n- --dtype\n- half"));
    check_edit(text, remove, &text.replace("- --tp\n- \"2\"\n", ""));
}

#[test]
fn what_stands_in_two_places_is_not_known() {
    check("B=\"2 4\"\nbash <<EOF\nsglang serve --cuda-graph-bs 1 $B\nEOF", &["3:1 --cuda-graph-bs 1 2 4"]);
    let parsed = parse(
        &Source::new("test.sh", "B=\"2 4\"\nbash <<EOF\nsglang serve --cuda-graph-bs 1 $B\nEOF"),
        &Options::default(),
    );
    let launch = parsed.launches.first().expect("a launch");
    assert!(launch.has(Key::CudaGraphBs) && launch.integers(Key::CudaGraphBs).is_none());
}
