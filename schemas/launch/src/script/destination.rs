//! What happens to a here-document: a script that is run or written to a file, YAML, or text that
//! nothing runs.

use crate::{
    command::Field,
    kind::TextKind,
    programs::{ProgramRole, base, has},
};

/// Options of `ssh` that take a value.
const SSH_OPTIONS: &str = "BbcDEeFIiJLlmOopQRSWw";

/// A command that a here-document goes through.
#[derive(Debug)]
pub struct PipelineStage<'a> {
    pub words: Vec<Field<'a>>,
    /// The file that its output goes to.
    pub writes: Option<Field<'a>>,
}

/// The kind of a document that is piped through these commands; `None` if no command runs it.
pub fn kind_of(stages: &[PipelineStage<'_>], body: &str) -> Option<TextKind> {
    for stage in stages {
        let words: Vec<&str> = stage.words.iter().map(|word| word.value.known().unwrap_or_default()).collect();
        let words = words.get(program_at(&words)?..)?;
        let (program, rest) = words.split_first()?;
        match base(program) {
            "cat" if rest.iter().any(|word| *word != "-") => return None,
            "cat" | "envsubst" => {}
            "tee" => {
                let files = stage.words.iter().skip(stage.words.len() - rest.len());
                let mut files = files.map(|file| file.value.written()).filter(|file| !file.starts_with('-'));
                if let Some(kind) = files.find_map(|file| from_file(file, body)) {
                    return Some(kind);
                }
            }
            _ => return kind_for_program(words, body),
        }
        if let Some(file) = &stage.writes {
            return from_file(file.value.known().unwrap_or(file.value.written()), body);
        }
    }
    None
}

/// The index of the program, after any wrappers that run it.
fn program_at(words: &[&str]) -> Option<usize> {
    let first = words.first()?;
    if !has(first, ProgramRole::Wrapper) {
        return Some(0);
    }
    let known = |word: &&str| {
        matches!(base(word), "cat" | "envsubst" | "tee")
            || [ProgramRole::Shell, ProgramRole::Remote, ProgramRole::Applier, ProgramRole::Scheduler]
                .into_iter()
                .any(|role| has(word, role))
    };
    words.iter().position(known)
}

/// The kind of input that a program expects.
fn kind_for_program(words: &[&str], body: &str) -> Option<TextKind> {
    let (program, rest) = words.split_first()?;
    let name = base(program);
    if has(name, ProgramRole::Scheduler) {
        return Some(TextKind::Script);
    }
    if has(name, ProgramRole::Applier) && takes_manifest(rest) {
        return Some(TextKind::Yaml);
    }
    if has(name, ProgramRole::Shell) && takes_script(rest) {
        return Some(TextKind::Script);
    }
    if name == "ssh" && is_remote_shell(rest) {
        return Some(TextKind::Script);
    }
    if name.starts_with("python") {
        return takes_program(rest).then_some(TextKind::Python);
    }
    if !has(name, ProgramRole::Shell) && !has(name, ProgramRole::Remote) {
        return None;
    }
    // A command that runs elsewhere may be one quoted word.
    let words: Vec<&str> = rest.iter().flat_map(|word| word.split_whitespace()).collect();
    if let Some(file) = written_file(&words) {
        return from_file(file, body);
    }
    let is_reader = |word: &&str| has(word, ProgramRole::Shell) || base(word).starts_with("python");
    let reader = words.iter().position(is_reader)?;
    let (program, rest) = words.get(reader..)?.split_first()?;
    if has(program, ProgramRole::Shell) {
        return takes_script(rest).then_some(TextKind::Script);
    }
    takes_program(rest).then_some(TextKind::Python)
}

/// Whether Python with these arguments reads its program from its input.
fn takes_program(words: &[&str]) -> bool {
    let mut words = words.iter().take_while(|word| !matches!(**word, "&&" | "||" | "|" | ";"));
    let first = words.find(|word| !matches!(**word, "-u" | "-B" | "-s" | "-E" | "-I" | "-O"));
    first.is_none_or(|word| matches!(*word, "-" | "/dev/stdin"))
}

/// Whether `-f -` is given.
fn takes_manifest(words: &[&str]) -> bool {
    let is_option = |word: &str| matches!(word, "-f" | "--file" | "--filename" | "--values");
    let is_input = |word: &str| matches!(word, "-" | "/dev/stdin");
    words.windows(2).any(|pair| matches!(pair, [option, value] if is_option(option) && is_input(value)))
        || words.iter().any(|word| {
            *word == "-f-" || word.split_once('=').is_some_and(|(option, value)| is_option(option) && is_input(value))
        })
}

/// Whether a shell with these arguments reads its script from its input.
fn takes_script(words: &[&str]) -> bool {
    let mut words = words.iter().take_while(|word| !matches!(**word, "&&" | "||" | "|" | ";"));
    while let Some(word) = words.next() {
        match word.strip_prefix(['-', '+']) {
            Some("") => return true,
            Some(long) if long.starts_with('-') => {}
            Some(letters) if letters.contains('c') => return false,
            Some(letters) if letters.contains('s') => return true,
            Some(letters) if letters.ends_with(['o', 'O']) => drop(words.next()),
            Some(_) => {}
            None => return *word == "/dev/stdin",
        }
    }
    true
}

/// Whether `ssh` with these arguments starts a shell: a host and no command.
fn is_remote_shell(words: &[&str]) -> bool {
    let mut operands = 0;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.strip_prefix('-') {
            // The value of an option may be joined to it.
            Some(option) if option.len() == 1 && SSH_OPTIONS.contains(option) => drop(words.next()),
            Some(_) => {}
            None => operands += 1,
        }
    }
    operands == 1
}

/// The file that `cat > FILE` or `tee FILE` in a command writes.
fn written_file<'w>(words: &[&'w str]) -> Option<&'w str> {
    let at = words.iter().position(|word| matches!(base(word), "cat" | "tee"))?;
    let rest = words.get(at + 1..)?;
    if base(words.get(at)?) == "tee" {
        return rest.iter().find(|word| !word.starts_with('-')).copied();
    }
    let first = rest.first()?.strip_prefix('>')?.trim_start_matches('>');
    if first.is_empty() { rest.get(1).copied() } else { Some(first) }
}

/// The kind of a file, from its name, or else from the first line of its content.
fn from_file(name: &str, body: &str) -> Option<TextKind> {
    let name = base(name).trim_matches(['"', '\'', ';']);
    match name.rsplit_once('.').filter(|(stem, ending)| !stem.is_empty() && !ending.contains(['$', '}', ')'])) {
        Some((_, "json" | "md" | "toml" | "txt")) => None,
        Some(_) => TextKind::from_name(name).filter(|kind| !matches!(kind, TextKind::Unread(_))),
        None if TextKind::from_name(name) == Some(TextKind::Dockerfile) => Some(TextKind::Dockerfile),
        None => begins_as_script(body).then_some(TextKind::Script),
    }
}

/// Whether the first line names a shell.
fn begins_as_script(body: &str) -> bool {
    let first = body.lines().next().unwrap_or_default().trim();
    first.strip_prefix("#!").is_some_and(|program| program.split_whitespace().any(|word| has(word, ProgramRole::Shell)))
}

#[cfg(test)]
mod tests {
    use schemas::text::{Located, Span};

    use super::*;
    use crate::command::CommandText;

    /// Commands separated by `|`, with `>` before a file; `+` in a word represents a blank.
    fn check(pipeline: &str, body: &str, expected: Option<TextKind>) {
        let field = |word: &str| {
            let text = word.replace('+', " ");
            let value =
                if text.contains('$') { CommandText::Unknown(text.into()) } else { CommandText::Known(text.into()) };
            Located::new(value, Span::default())
        };
        let stage = |command: &str| {
            let (words, file) = command.split_once(" > ").map_or((command, None), |(words, file)| (words, Some(file)));
            PipelineStage {
                words: words.split_whitespace().map(field).collect(),
                writes: file.map(|file| field(file.trim())),
            }
        };
        let stages: Vec<PipelineStage<'_>> = pipeline.split(" | ").map(stage).collect();
        assert_eq!(kind_of(&stages, body), expected, "{pipeline}");
    }

    #[test]
    fn what_runs_a_script_reads_one() {
        for pipeline in [
            "bash",
            "/bin/bash -s -- a b",
            "sh -ex",
            "bash -euo pipefail",
            "bash -",
            "sudo -u x bash",
            "cat | bash -l",
            "envsubst | sh",
            "ssh host",
            "ssh -p 22 -i key -tt user@host",
            "ssh host bash -s",
            "ssh host sudo+bash+-s",
            "ssh host cd+/x+&&+bash+-s",
            "docker exec -i c bash -s",
            "docker run --rm -i image:v1 /bin/sh",
            "kubectl exec -i pod -- bash",
            "srun -N 2 bash",
            "sbatch -N 2 --gres=gpu:8",
        ] {
            check(pipeline, "", Some(TextKind::Script));
        }
    }

    #[test]
    fn files_are_what_their_names_say() {
        for pipeline in [
            "cat > run.sh",
            "cat > $DIR/run.sh",
            "cat > \"$X.slurm\"",
            "tee -a run.sh > /dev/null",
            "cat | sudo tee /x/run.bash > /dev/null",
            "ssh host cat+>+/x/run.sh",
            "ssh host cat+>>/x/run.sh+&&+bash+/x/run.sh",
            "docker exec -i c sh -c cat+>+run.sh",
            "docker exec -i c tee run.sh",
        ] {
            check(pipeline, "", Some(TextKind::Script));
        }
        for file in ["run", "$SCRIPT", "$DIR/run", "run.$ENDING", ".hidden"] {
            check(&format!("cat > {file}"), "#!/usr/bin/env bash\n", Some(TextKind::Script));
            check(&format!("cat > {file}"), "#!/usr/bin/env python3\n", None);
            check(&format!("cat > {file}"), "sglang serve\n", None);
        }
        check("cat > a.py", "", Some(TextKind::Python));
        check("cat > a.service", "", Some(TextKind::Unit));
        check("cat > Dockerfile", "", Some(TextKind::Dockerfile));
        for file in ["README", "README.md", "a.json", "a.txt"] {
            check(&format!("cat > {file}"), "sglang serve --model-path x\n", None);
        }
        check("cat > a.yaml", "", Some(TextKind::Yaml));
        check("tee $X.yml", "", Some(TextKind::Yaml));
    }

    #[test]
    fn what_runs_a_program_reads_python() {
        for pipeline in
            ["python3 -", "python -u - a b", "/venv/bin/python3.12", "ssh host python3", "docker exec -i c python3 -"]
        {
            check(pipeline, "", Some(TextKind::Python));
        }
    }

    #[test]
    fn what_takes_a_manifest_reads_yaml() {
        for pipeline in [
            "kubectl apply -f -",
            "cat | kubectl -n x apply -f -",
            "cat | envsubst | oc create --filename=-",
            "docker compose -f - up -d",
            "helm install x chart --values -",
            "kubectl apply -f-",
            "kubectl create -f /dev/stdin",
        ] {
            check(pipeline, "", Some(TextKind::Yaml));
        }
    }

    #[test]
    fn other_texts_are_not_run() {
        for pipeline in [
            "cat",
            "cat file",
            "python3 run.py",
            "python3 -c x",
            "bash run.sh",
            "bash -c read+x",
            "sudo python3 run.py",
            "mail -s bash x",
            "ssh host ./start",
            "ssh host python3 -m x",
            "kubectl apply -f a.yaml",
            "mysql",
            "sed s/a/b/ | bash",
            "cat | grep x",
            "",
        ] {
            check(pipeline, "#!/bin/bash\nsglang serve --model-path x\n", None);
        }
    }
}
