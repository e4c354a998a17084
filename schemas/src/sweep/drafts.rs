//! Several drafts in one sweep.
//!
//! `[models] draft = …, algorithm = …` is a sweep of one draft. `[[drafts]]` replaces both keys by
//! a list: every entry is a draft with its own space, and all of them race against one another and
//! against no speculation, which is one configuration that all drafts share. A list of one entry
//! means the same as the two keys.
//!
//! The tuner sees a sweep of several drafts as sweeps of one draft each ([`SweepFile::each_draft`])
//! that share everything else, and a configuration as a tree shape with the name of its draft.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Space, StrategyName, SweepFile, workload::name_of_file};
use crate::{toml_file::FieldError, tree::NodeSource};

/// A draft of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SweepDraft {
    /// Its name in results: letters, digits, `.`, `_` and `-`. Default: the last part of `path`, or
    /// without a path the algorithm in lower case, followed by its second source. No two drafts may
    /// have the same name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// As `models.algorithm`: EAGLE, EAGLE3, NEXTN, DFLASH, DSPARK, STANDALONE, NGRAM,
    /// PROMPT_LOOKUP or SUFFIX.
    pub algorithm: String,
    /// As `models.draft`: folder of the draft, or its id. Omit it for the MTP layer of the target's
    /// own checkpoint (NEXTN, EAGLE) and for drafts from texts (NGRAM, PROMPT_LOOKUP, SUFFIX).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// As `models.second_source`: with it and without it a head is two drafts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_source: Option<String>,
    /// The tree shapes to try with this draft, in place of `[space]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<Space>,
}

/// A prompt file with the sweep of it alone.
#[derive(Clone, Debug, PartialEq)]
pub struct OneWorkload {
    /// Its name in results; empty if it is the only workload of the sweep.
    pub name: String,
    /// The sweep file with this prompt file alone.
    pub file: SweepFile,
}

/// A draft with the sweep of it alone.
#[derive(Clone, Debug, PartialEq)]
pub struct OneDraft {
    /// Its name; empty if it is the only draft of the sweep.
    pub name: String,
    /// The sweep file with this draft in `[models]` and its shapes in `[space]`, and without
    /// `[[drafts]]`.
    pub file: SweepFile,
}

impl SweepDraft {
    /// Its name, given or derived.
    pub fn display_name(&self) -> String {
        if !self.name.is_empty() {
            return self.name.clone();
        }
        // The folder's own name, of a path such as `../heads/code/`.
        let last = self.path.split(['/', '\\']).rfind(|part| !part.is_empty() && *part != "." && *part != "..");
        let mut name = last.map_or_else(|| self.algorithm.to_ascii_lowercase(), ToOwned::to_owned);
        if let Some(second) = &self.second_source {
            // One head with and without a second source is two drafts, which need two names.
            name = format!("{name}-{}", second.to_ascii_lowercase().replace('_', "-"));
        }
        name.chars().map(|one| if is_of_a_name(one) { one } else { '-' }).collect()
    }
}

fn is_of_a_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || "._-".contains(character)
}

impl SweepFile {
    /// Whether several drafts race.
    pub fn has_several_drafts(&self) -> bool {
        self.drafts.len() > 1
    }

    /// The drafts in the order of the file, each with the sweep of it alone. A single one has an
    /// empty name, however it is given.
    pub fn each_draft(&self) -> Vec<OneDraft> {
        if self.drafts.is_empty() {
            return vec![OneDraft { name: String::new(), file: self.clone() }];
        }
        self.drafts.iter().map(|draft| self.with_draft(draft)).collect()
    }

    /// The workloads, each with the sweep of it alone. A single prompt file is a workload without a
    /// name, as are all other workloads.
    pub fn each_workload(&self) -> Vec<OneWorkload> {
        let files = &self.workload.prompt_files;
        let of = |path: &String| {
            let mut file = self.clone();
            file.workload.prompt_files.clear();
            file.workload.prompts = Some(path.clone());
            let name = if files.len() > 1 { name_of_file(path) } else { String::new() };
            OneWorkload { name, file }
        };
        match files.as_slice() {
            [] => vec![OneWorkload { name: String::new(), file: self.clone() }],
            files => files.iter().map(of).collect(),
        }
    }

    fn with_draft(&self, draft: &SweepDraft) -> OneDraft {
        let mut file = Self { drafts: Vec::new(), ..self.clone() };
        file.models.draft.clone_from(&draft.path);
        file.models.algorithm.clone_from(&draft.algorithm);
        file.models.second_source.clone_from(&draft.second_source);
        if let Some(space) = &draft.space {
            file.space.clone_from(space);
        }
        // With a single draft, results are named as without [[drafts]], and earlier ones are found
        // again.
        let name = if self.has_several_drafts() { draft.display_name() } else { String::new() };
        OneDraft { name, file }
    }

    /// The sweep of the draft of this name alone; the first one's if there is no such draft.
    pub fn for_draft(&self, name: &str) -> Self {
        let mut all = self.each_draft();
        let at = all.iter().position(|one| one.name == name).unwrap_or_default();
        all.swap_remove(at).file
    }

    /// What is wrong with `[[drafts]]`, and with `[models]` beside it.
    pub(super) fn check_drafts(&self) -> Result<(), FieldError> {
        let models = &self.models;
        if self.drafts.is_empty() {
            return match models.algorithm.is_empty() {
                true => Err(FieldError::at(&["models"], "the key `algorithm` is missing")),
                false => Ok(()),
            };
        }
        let excluded = [
            (
                &["models", "algorithm"][..],
                !models.algorithm.is_empty(),
                "each of [[drafts]] has its own: remove this one",
            ),
            (&["models", "draft"], !models.draft.is_empty(), "each of [[drafts]] has its own path: remove this one"),
            (&["models", "model_shape"], models.model_shape.is_some(), "random weights have no [[drafts]]"),
            (
                &["models", "acceptance"],
                models.acceptance.is_some(),
                "an imported table is of one draft: remove it, or [[drafts]]",
            ),
            (&["system", "url"], self.system.url.is_some(), "a running server has one draft: remove [[drafts]]"),
        ];
        if let Some((key, _, reason)) = excluded.into_iter().find(|(_, given, _)| *given) {
            return Err(FieldError::at(key, reason));
        }
        for (at, draft) in self.drafts.iter().enumerate() {
            self.check_draft(draft, at).map_err(|reason| FieldError::at(&["drafts"], reason).element(at))?;
        }
        let guided = self.search.strategy == StrategyName::Guided && self.has_several_drafts();
        if guided && !self.system.is_in_process() {
            let reason = "a guided search over servers knows one draft: use grid, random or anneal with [[drafts]]";
            return Err(FieldError::at(&["search", "strategy"], reason));
        }
        Ok(())
    }

    fn check_draft(&self, draft: &SweepDraft, at: usize) -> Result<(), String> {
        let name = draft.display_name();
        if !draft.name.chars().all(is_of_a_name) {
            return Err(format!("the name {:?} may have letters, digits, '.', '_' and '-' only", draft.name));
        }
        if self.drafts[..at].iter().any(|other| other.display_name() == name) {
            return Err(format!("two drafts are called {name}: give one of them another `name`"));
        }
        let OneDraft { file, .. } = self.with_draft(draft);
        // The check speaks of [models], where the key has another name.
        file.models.check().map_err(|wrong| wrong.message().replace("`draft`", "`path`"))?;
        file.space.check(NodeSource::named(&draft.algorithm)).map_err(|wrong| {
            let whose = if draft.space.is_some() { "its space" } else { "[space], which it shares" };
            format!("draft {name}, {whose}: {}", wrong.message())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Source;

    const GOOD: &str = "[models]\ntarget = 't'\n[workload]\nprompts = 'p'\n[space]\nshapes = ['2,1,3']\n\
                        [[drafts]]\nalgorithm = 'EAGLE3'\npath = '/heads/eagle3/'\n\
                        [[drafts]]\nalgorithm = 'SUFFIX'\n[drafts.space]\nshapes = ['4,1,5']\n";

    fn read(from: &str, to: &str) -> Result<SweepFile, (usize, String)> {
        let source = Source::new("sweep.toml", GOOD.replacen(from, to, 1));
        SweepFile::read(&source).map_err(|found| (source.position(found.span.start).line, found.message))
    }

    #[test]
    fn each_draft_is_a_sweep_of_its_own() {
        let file = read("", "").expect("a good file");
        let each = file.each_draft();
        let of = |at: usize| {
            let OneDraft { name, file } = &each[at];
            (name.as_str(), file.models.draft.as_str(), file.models.algorithm.as_str(), file.space.shapes.join(" "))
        };
        assert_eq!(of(0), ("eagle3", "/heads/eagle3/", "EAGLE3", "2,1,3".into()));
        assert_eq!(of(1), ("suffix", "", "SUFFIX", "4,1,5".into()));
        assert_eq!(file.for_draft("suffix"), each[1].file);
        // Written and read again it is the same.
        let text = file.write().expect("text");
        assert_eq!(SweepFile::read(&Source::new("again", text)).expect("a good file"), file);
    }

    #[test]
    fn one_entry_is_the_same_as_the_two_keys() {
        let one = "[models]\ntarget = 't'\n[workload]\nprompts = 'p'\n[[drafts]]\nalgorithm = 'EAGLE3'\npath = 'd'\n";
        let keys = "[models]\ntarget = 't'\ndraft = 'd'\nalgorithm = 'EAGLE3'\n[workload]\nprompts = 'p'\n";
        let [one, keys] = [one, keys].map(|text| SweepFile::read(&Source::new("s", text)).expect("a good file"));
        assert_eq!(one, keys);
    }

    #[test]
    fn a_head_with_a_second_source_is_another_draft() {
        let twice = "path = '/heads/eagle3/'\n[[drafts]]\nalgorithm = 'EAGLE3'\npath = '/heads/eagle3'\n\
                     second_source = 'PROMPT_LOOKUP'\n";
        let file = read("path = '/heads/eagle3/'\n", twice).expect("a good file");
        let names: Vec<String> = file.each_draft().into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["eagle3", "eagle3-prompt-lookup", "suffix"]);
        let of = |name: &str| file.for_draft(name).models.second_source;
        assert_eq!((of("eagle3"), of("eagle3-prompt-lookup").as_deref()), (None, Some("PROMPT_LOOKUP")));
    }

    #[test]
    fn each_prompt_file_is_a_workload_of_its_own() {
        let file = read("prompts = 'p'", "prompt_files = ['a/chat.jsonl', 'b/code.v2.jsonl']").expect("a good file");
        let each = file.each_workload();
        let named: Vec<_> = each.iter().map(|one| (one.name.as_str(), one.file.workload.prompts.as_deref())).collect();
        assert_eq!(named, [("chat", Some("a/chat.jsonl")), ("code-v2", Some("b/code.v2.jsonl"))]);
        assert!(each.iter().all(|one| one.file.workload.prompt_files.is_empty()));
        let one = read("prompts = 'p'", "prompt_files = ['p']").expect("a good file");
        assert_eq!(one, read("", "").expect("a good file"));
        let found = read("prompts = 'p'", "prompt_files = ['a/x.jsonl', 'b/x.jsonl']").expect_err("one name twice");
        assert!(found.1.contains("two files are called \"x\""), "{}", found.1);
    }

    #[test]
    fn errors_say_which_draft_is_wrong() {
        for (from, to, line, message) in [
            ("algorithm = 'SUFFIX'", "algorithm = 'SUFFIX'\nname = 'eagle3'", 10, "two drafts are called eagle3"),
            ("algorithm = 'SUFFIX'", "algorithm = 'SUFFIX'\nname = 'a b'", 10, "may have letters"),
            ("path = '/heads/eagle3/'\n", "", 7, "the key `path` is missing"),
            ("algorithm = 'SUFFIX'", "algorithm = 'SUFFIX'\nsecond_source = 'PROMPT_LOOKUP'", 10, "has none"),
            ("path = '/heads/eagle3/'", "path = '/heads/eagle3/'\nsecond_source = 'NGRAM'", 7, "PROMPT_LOOKUP"),
            ("'4,1,5'", "'4,1,9'", 10, "draft suffix, its space"),
            ("'2,1,3'", "'2,1,9'", 7, "draft eagle3, [space], which it shares"),
            ("target = 't'", "target = 't'\nalgorithm = 'EAGLE3'", 3, "each of [[drafts]] has its own"),
            (
                "[space]",
                "[search]\nstrategy = 'guided'\n[system]\nkind = 'sglang'\ncommand = ['s']\n[space]",
                6,
                "one draft",
            ),
        ] {
            let found = read(from, to).expect_err(to);
            assert!(found.1.contains(message), "{to}: {}", found.1);
            assert_eq!(found.0, line, "{to}: {}", found.1);
        }
    }
}
