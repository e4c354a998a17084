//! What a text is that may hold launches, by its name or by how it begins.

use schemas::text::Source;

use super::file;

/// How a text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A script or a command line of a shell, or Markdown with such blocks.
    Script,
    /// A manifest, or a config file.
    Yaml,
    /// Our TOML.
    Toml,
    /// A program that puts a launch together.
    Python,
    /// A recipe of an image.
    Dockerfile,
    /// A unit of systemd.
    Unit,
    /// A format that is not read, by its name.
    Unread(&'static str),
}

/// What the names of shell scripts end with.
const SCRIPTS: [&str; 10] = ["bash", "command", "job", "ksh", "lsf", "pbs", "sbatch", "sh", "slurm", "zsh"];

/// What the names of samples end with, and those of templates.
const SAMPLES: [&str; 2] = [".example", ".in"];
const TEMPLATES: [&str; 7] = [".erb", ".gotmpl", ".j2", ".jinja", ".jinja2", ".tmpl", ".tpl"];

/// A file's name without its folders.
pub fn base_of(name: &str) -> &str {
    name.rsplit(['/', '\\']).next().unwrap_or_default()
}

/// Whether a file with this name is a page: prose with blocks of commands.
pub fn is_page_name(name: &str) -> bool {
    [".md", ".markdown", ".mdx", ".rst"].iter().any(|ending| name.ends_with(ending))
}

impl Kind {
    /// What a text is.
    pub fn of(source: &Source) -> Self {
        Self::of_name(source.name()).unwrap_or_else(|| Self::of_text(source))
    }

    /// What a file is by its name alone.
    pub fn of_name(name: &str) -> Option<Self> {
        let base = base_of(name).to_ascii_lowercase();
        // A template is what it becomes.
        let of_template = SAMPLES.iter().chain(&TEMPLATES).find_map(|ending| base.strip_suffix(ending));
        let base = of_template.unwrap_or(&base);
        let stem = base.split('.').next().unwrap_or_default();
        if matches!(stem, "dockerfile" | "containerfile") || base.ends_with(".dockerfile") {
            return Some(Self::Dockerfile);
        }
        match base.rsplit_once('.').filter(|(stem, _)| !stem.is_empty())?.1 {
            "yaml" | "yml" | "json" => Some(Self::Yaml),
            "toml" => Some(Self::Toml),
            "py" | "pyi" => Some(Self::Python),
            "service" | "container" => Some(Self::Unit),
            "tf" | "hcl" | "tfvars" => Some(Self::Unread("Terraform")),
            "ipynb" => Some(Self::Unread("a notebook")),
            "md" | "markdown" | "mdx" | "rst" | "txt" | "cfg" | "conf" | "env" | "ini" => Some(Self::Script),
            ending => SCRIPTS.contains(&ending).then_some(Self::Script),
        }
    }

    /// Whether a file is a template by its name.
    pub fn is_template(name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        TEMPLATES.iter().any(|ending| name.ends_with(ending))
    }

    /// What a text without a telling name is by its first line that says anything.
    fn of_text(source: &Source) -> Self {
        let text = source.text().trim_start_matches('\u{feff}');
        if let Some(interpreter) = text.strip_prefix("#!") {
            let line = interpreter.lines().next().unwrap_or_default();
            return if line.contains("python") { Self::Python } else { Self::Script };
        }
        match begins_as(text) {
            Some(kind) => kind,
            None if file::looks_like_toml(source) => Self::Toml,
            None => Self::Script,
        }
    }

    /// What a fenced block of Markdown is; nothing where it is in a language that holds no launch. `info` is what stands
    /// after its fence.
    pub fn of_fence(info: &str, text: &str) -> Option<Self> {
        let mut words = info.split(|letter: char| letter.is_whitespace() || "{}.,:".contains(letter));
        let word = words.by_ref().find(|word| !word.is_empty()).unwrap_or_default().to_ascii_lowercase();
        let word = match word.as_str() {
            "code-block" | "code-cell" => words.find(|word| !word.is_empty()).unwrap_or_default().to_ascii_lowercase(),
            _ => word,
        };
        match word.as_str() {
            "yaml" | "yml" | "json" | "jsonc" | "json5" => Some(Self::Yaml),
            "py" | "python" | "python3" | "ipython" | "pycon" => Some(Self::Python),
            "docker" | "dockerfile" | "containerfile" => Some(Self::Dockerfile),
            "ini" | "service" | "systemd" => Some(Self::Unit),
            "toml" | "diff" | "patch" | "log" | "logs" | "output" | "c" | "cpp" | "c++" | "cuda" | "rust" | "go"
            | "java" | "js" | "javascript" | "ts" | "typescript" | "tsx" | "jsx" | "html" | "xml" | "css" | "sql"
            | "latex" | "tex" | "math" | "mermaid" | "csv" | "hcl" | "terraform" | "tf" | "proto" | "protobuf"
            | "bibtex" => None,
            // Launches are pasted under any name, and under none.
            _ => Some(begins_as(text).unwrap_or(Self::Script)),
        }
    }
}

/// What a text is by how it begins, where that tells it apart from a script.
fn begins_as(text: &str) -> Option<Kind> {
    let says = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let line = text.lines().map(str::trim_end).find(says)?;
    let mut words = line.split_whitespace();
    let (first, second) = (words.next()?, words.next().unwrap_or_default());
    let in_module = |word: &str| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.,".contains(&byte));
    match first {
        "[Unit]" | "[Service]" | "[Install]" => Some(Kind::Unit),
        "FROM" if !second.is_empty() => Some(Kind::Dockerfile),
        "import" if in_module(second) && !second.is_empty() => Some(Kind::Python),
        "from" if words.next() == Some("import") => Some(Kind::Python),
        "\"\"\"" => Some(Kind::Python),
        _ if first.starts_with("\"\"\"") => Some(Kind::Python),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_what_their_names_say() {
        for (name, kind) in [
            ("a/run.sh", Kind::Script),
            ("README.md", Kind::Script),
            ("x.slurm", Kind::Script),
            ("a.yaml", Kind::Yaml),
            ("pod.json", Kind::Yaml),
            ("a.toml", Kind::Toml),
            ("a.PY", Kind::Python),
            ("docker/Dockerfile.rocm", Kind::Dockerfile),
            ("vllm.Dockerfile", Kind::Dockerfile),
            ("sglang.service", Kind::Unit),
            ("main.tf", Kind::Unread("Terraform")),
            ("values.yaml.tpl", Kind::Yaml),
        ] {
            assert_eq!(Kind::of(&Source::new(name, "x")), kind, "{name}");
        }
    }

    #[test]
    fn texts_without_a_telling_name_are_what_they_begin_as() {
        for (text, kind) in [
            ("sglang serve --tp 2", Kind::Script),
            ("#!/usr/bin/env python3\n", Kind::Python),
            ("#!/bin/bash\nimport x\n", Kind::Script),
            ("# x\nimport os, sys\n", Kind::Python),
            ("from a.b import c\n", Kind::Python),
            ("import this image into the registry", Kind::Python),
            ("FROM lmsysorg/sglang:v0.5.9\n", Kind::Dockerfile),
            ("[Unit]\nDescription=x\n", Kind::Unit),
            ("model_path = \"a\"\n", Kind::Toml),
        ] {
            assert_eq!(Kind::of(&Source::new("<stdin>", text)), kind, "{text}");
        }
    }

    #[test]
    fn fences_say_what_they_hold() {
        for (info, text, kind) in [
            ("", "sglang serve", Some(Kind::Script)),
            ("bash title=\"x\"", "", Some(Kind::Script)),
            ("{code-block} bash", "", Some(Kind::Script)),
            ("{.yaml}", "", Some(Kind::Yaml)),
            ("yml", "", Some(Kind::Yaml)),
            ("", "import sglang as sgl\n", Some(Kind::Python)),
            ("python3 {1,2}", "", Some(Kind::Python)),
            ("diff", "", None),
        ] {
            assert_eq!(Kind::of_fence(info, text), kind, "{info}");
        }
    }
}
