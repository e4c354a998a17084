//! How a text is read, by its name or by how it starts.

use schemas::text::Source;

/// How a text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextKind {
    /// A script or a command line of a shell.
    Script,
    /// A page with blocks of commands.
    Markdown,
    /// A manifest, or a config file.
    Yaml,
    /// spectune's TOML.
    Toml,
    /// A program that assembles a command.
    Python,
    /// The description of an image.
    Dockerfile,
    /// A systemd unit.
    Unit,
    /// A format that is not read, by its name.
    Unread(&'static str),
}

/// Endings of scripts of shells and schedulers.
const SCRIPTS: [&str; 10] = ["bash", "command", "job", "ksh", "lsf", "pbs", "sbatch", "sh", "slurm", "zsh"];

/// Endings of samples and of templates, which are read as what they become.
const SAMPLES: [&str; 2] = [".example", ".in"];
const TEMPLATES: [&str; 7] = [".erb", ".gotmpl", ".j2", ".jinja", ".jinja2", ".tmpl", ".tpl"];

/// Languages of blocks of Markdown that are read as a shell reads them, and that someone pastes
/// into one.
const SHELLS: [&str; 10] =
    ["bash", "console", "ksh", "sh", "shell", "shell-session", "shellscript", "shellsession", "terminal", "zsh"];

/// A file's name without its folders.
pub fn base_of(name: &str) -> &str {
    name.rsplit(['/', '\\']).next().unwrap_or_default()
}

/// Whether a file is a page: prose with blocks of commands.
pub fn is_page_name(name: &str) -> bool {
    ending_of(name).is_some_and(|ending| matches!(ending.as_str(), "md" | "markdown" | "mdx" | "rst"))
}

/// The ending of a file's name, in lower case, without endings of samples and templates. `None` if
/// the name has no ending: numbers (`run-v0.5.9`) are not one.
pub fn ending_of(name: &str) -> Option<String> {
    let base = bare(name);
    let (stem, ending) = base.rsplit_once('.')?;
    let is_ending = !stem.is_empty() && ending.contains(|letter: char| letter.is_ascii_alphabetic());
    (is_ending && !base.starts_with('<')).then(|| ending.to_owned())
}

/// Whether a file is a Makefile or justfile.
pub fn is_makefile(name: &str) -> bool {
    let base = bare(name);
    matches!(base.trim_start_matches('.'), "makefile" | "gnumakefile" | "justfile")
        || base.ends_with(".mk")
        || base.ends_with(".just")
}

/// Whether a file is a script of a shell or of a scheduler.
pub fn is_script_name(name: &str) -> bool {
    ending_of(name).is_some_and(|ending| SCRIPTS.contains(&ending.as_str()))
}

/// A file's name in lower case, without folders and endings of samples and templates.
fn bare(name: &str) -> String {
    let base = base_of(name).to_ascii_lowercase();
    let shorter = SAMPLES.iter().chain(&TEMPLATES).find_map(|ending| base.strip_suffix(ending)).map(str::to_owned);
    shorter.unwrap_or(base)
}

/// Whether a file is a configuration of supervisord.
pub fn has_programs_of_supervisord(source: &Source) -> bool {
    let is_named = ending_of(source.name()).is_some_and(|ending| ["conf", "ini", "cfg"].contains(&ending.as_str()));
    is_named && source.text().lines().any(|line| line.trim_start().starts_with("[program:"))
}

/// Whether a text has fenced blocks of Markdown.
pub fn has_fences(source: &Source) -> bool {
    let text = source.text();
    let opens = |line: &str| {
        let line = line.trim_start_matches([' ', '\t', '>']);
        line.starts_with("```") || line.starts_with("~~~")
    };
    (text.contains("```") || text.contains("~~~")) && !text.starts_with("#!") && text.lines().any(opens)
}

impl TextKind {
    /// The kind of a text.
    pub fn detect(source: &Source) -> Self {
        match Self::from_name(source.name()) {
            Some(Self::Script) if !is_script_name(source.name()) && has_fences(source) => Self::Markdown,
            Some(Self::Script) if has_programs_of_supervisord(source) => Self::Unit,
            Some(kind) => kind,
            None => Self::from_text(source),
        }
    }

    /// The kind of a file by its name alone.
    pub fn from_name(name: &str) -> Option<Self> {
        let base = bare(name);
        let stem = base.split('.').next().unwrap_or_default();
        if matches!(stem, "dockerfile" | "containerfile") || base.ends_with(".dockerfile") {
            return Some(Self::Dockerfile);
        }
        match ending_of(name)?.as_str() {
            "yaml" | "yml" | "json" => Some(Self::Yaml),
            "toml" => Some(Self::Toml),
            "py" | "pyi" => Some(Self::Python),
            "service" | "container" => Some(Self::Unit),
            "tf" | "hcl" | "tfvars" => Some(Self::Unread("Terraform")),
            "ipynb" => Some(Self::Unread("a notebook")),
            "md" | "markdown" | "mdx" => Some(Self::Markdown),
            "rst" | "txt" | "cfg" | "conf" | "env" | "ini" | "mk" | "just" => Some(Self::Script),
            ending => SCRIPTS.contains(&ending).then_some(Self::Script),
        }
    }

    /// Whether a file is a template by its name.
    pub fn is_template(name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        TEMPLATES.iter().any(|ending| name.ends_with(ending))
    }

    /// The kind of a text whose name does not say it.
    fn from_text(source: &Source) -> Self {
        let text = source.text().trim_start_matches('\u{feff}');
        if let Some(interpreter) = text.strip_prefix("#!") {
            let line = interpreter.lines().next().unwrap_or_default();
            return if line.contains("python") { Self::Python } else { Self::Script };
        }
        match by_first_line(text) {
            Some(kind) => kind,
            None if is_makefile(source.name()) => Self::Script,
            None if looks_like_toml(source) => Self::Toml,
            None if has_fences(source) => Self::Markdown,
            None => Self::Script,
        }
    }

    /// The kind of a block of Markdown, and whether its language is a shell. `info` is the text
    /// after its fence.
    pub fn from_block(info: &str, text: &str) -> (Self, bool) {
        let mut words = info.split(|letter: char| letter.is_whitespace() || "{}.,:".contains(letter));
        let word = words.find(|word| !word.is_empty()).unwrap_or_default().to_ascii_lowercase();
        let kind = match word.as_str() {
            "yaml" | "yml" | "json" | "jsonc" | "json5" => Self::Yaml,
            "py" | "python" | "python3" | "ipython" | "pycon" => Self::Python,
            "docker" | "dockerfile" | "containerfile" => Self::Dockerfile,
            "ini" | "service" | "systemd" => Self::Unit,
            // Launches are pasted under any name, and under none.
            _ => by_first_line(text).unwrap_or(Self::Script),
        };
        (kind, kind == Self::Script && SHELLS.contains(&word.as_str()))
    }
}

/// The kind of a text by its first line, if that shows that it is not a script.
fn by_first_line(text: &str) -> Option<TextKind> {
    let says = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let line = text.lines().map(str::trim_end).find(says)?;
    let mut words = line.split_whitespace();
    let (first, second) = (words.next()?, words.next().unwrap_or_default());
    let in_module = |word: &str| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.,".contains(&byte));
    match first {
        "[Unit]" | "[Service]" | "[Install]" | "[Container]" => Some(TextKind::Unit),
        "FROM" if !second.is_empty() => Some(TextKind::Dockerfile),
        "import" if in_module(second) && !second.is_empty() => Some(TextKind::Python),
        "from" if words.next() == Some("import") => Some(TextKind::Python),
        _ if first.starts_with("\"\"\"") => Some(TextKind::Python),
        _ => None,
    }
}

/// Whether a text is TOML rather than shell, by its first line that is not a comment.
fn looks_like_toml(source: &Source) -> bool {
    let line = source.text().lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    line.is_some_and(|line| {
        // The header of a table, rather than a list of words or the time of a line of a log.
        if let Some(header) = line.strip_prefix("[[").or_else(|| line.strip_prefix('[')) {
            let name = header.trim_end_matches(']');
            let is_bare = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
            return name.len() < header.len() && !name.is_empty() && name.chars().all(is_bare);
        }
        // A shell assignment has no blanks around its `=`.
        line.split_once('=').is_some_and(|(key, value)| {
            let bare = key.trim_end();
            // A table in braces ends on its line, and no line of TOML ends like one of JavaScript.
            let is_of_javascript = value.ends_with(['{', '(', ';']);
            !bare.is_empty()
                && !is_of_javascript
                && bare.len() < key.len()
                && value.starts_with(' ')
                && bare.chars().all(|character| character.is_ascii_alphanumeric() || "_-.\"".contains(character))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_kinds() {
        for (name, kind) in [
            ("a/run.sh", TextKind::Script),
            ("run.sh.j2", TextKind::Script),
            ("x.slurm", TextKind::Script),
            ("README.md", TextKind::Markdown),
            ("a.yaml", TextKind::Yaml),
            ("pod.json", TextKind::Yaml),
            ("compose.yml.example", TextKind::Yaml),
            ("values.yaml.tpl", TextKind::Yaml),
            ("a.toml", TextKind::Toml),
            ("a.PY", TextKind::Python),
            ("docker/Dockerfile.rocm", TextKind::Dockerfile),
            ("vllm.Dockerfile", TextKind::Dockerfile),
            ("sglang.service", TextKind::Unit),
            ("main.tf", TextKind::Unread("Terraform")),
            ("start", TextKind::Script),
            ("main.rs", TextKind::Script),
            ("Makefile", TextKind::Script),
        ] {
            assert_eq!(TextKind::detect(&Source::new(name, "x")), kind, "{name}");
        }
    }

    #[test]
    fn texts_without_a_known_ending_have_the_kind_of_their_first_line() {
        for (text, kind) in [
            ("sglang serve --tp 2", TextKind::Script),
            ("#!/usr/bin/env python3\n", TextKind::Python),
            ("#!/bin/bash\nimport x\n```\n", TextKind::Script),
            ("# x\nimport os, sys\n", TextKind::Python),
            ("from a.b import c\n", TextKind::Python),
            ("FROM lmsysorg/sglang:v0.5.9\n", TextKind::Dockerfile),
            ("[Unit]\nDescription=x\n", TextKind::Unit),
            ("model_path = \"a\"\n", TextKind::Toml),
            ("run this:\n```\nsglang serve\n```\n", TextKind::Markdown),
        ] {
            assert_eq!(TextKind::detect(&Source::new("<stdin>", text)), kind, "{text}");
        }
    }

    #[test]
    fn assignments_of_make_are_not_toml() {
        for name in ["Makefile", "justfile", "serve.mk"] {
            assert_eq!(TextKind::detect(&Source::new(name, "MODEL = a\n")), TextKind::Script, "{name}");
        }
    }

    #[test]
    fn numbers_are_no_endings() {
        assert_eq!(ending_of("run-v0.5.9"), None);
        assert_eq!(ending_of("<stdin>"), None);
        assert_eq!(ending_of("a.b/run.SH.tmpl").as_deref(), Some("sh"));
    }

    #[test]
    fn lines_of_logs_and_lists_are_not_toml_and_headers_are() {
        let kind = |text: &str| TextKind::from_text(&Source::new("server.log", text));
        for text in [
            "[2026-01-12 10:11:12] cmd: ['vllm', 'serve']\n",
            "['vllm', 'serve']\n",
            "[\"vllm\"]\n",
            "[[\n",
            "module.exports = {\n",
        ] {
            assert_ne!(kind(text), TextKind::Toml, "{text}");
        }
        for text in ["[models]\ntarget = \"m\"\n", "[[drafts]]\n", "[models.draft-1]\n"] {
            assert_eq!(kind(text), TextKind::Toml, "{text}");
        }
    }

    #[test]
    fn blocks_have_the_kind_of_their_language() {
        assert_eq!(TextKind::from_block("bash title=\"run\"", ""), (TextKind::Script, true));
        assert_eq!(TextKind::from_block("", "vllm serve m"), (TextKind::Script, false));
        assert_eq!(TextKind::from_block("", "FROM vllm/vllm-openai"), (TextKind::Dockerfile, false));
        assert_eq!(TextKind::from_block("{.yaml}", ""), (TextKind::Yaml, false));
    }
}
