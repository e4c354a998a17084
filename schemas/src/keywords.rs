//! The keywords of the engines' classes that programs call, by version.
//!
//! The tables were read from wheels on PyPI by `schemas/scripts/read_keywords.py`; the first line
//! of each names the versions. A call knows neither aliases nor abbreviations of flags.

use std::{cmp::Reverse, sync::OnceLock};

use crate::{
    engines::Engine,
    flags::{Key, Lookup},
    text::distance,
    version::EngineVersion,
};

/// A class that a program calls to start an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Callee {
    /// SGLang's `ServerArgs`, to which `Engine` passes its keywords on.
    ServerArgs,
    /// vLLM's `EngineArgs`.
    EngineArgs,
    /// vLLM's `AsyncEngineArgs`.
    AsyncEngineArgs,
    /// vLLM's `LLM`, which passes most keywords on to `EngineArgs`.
    Llm,
}

/// A keyword that some version of a class takes.
#[derive(Clone, Copy, Debug)]
pub struct Keyword {
    class: Callee,
    /// Its name.
    pub name: &'static str,
    /// The flag that sets the same field, without dashes, if it has another name.
    flag: Option<&'static str>,
    /// First version that takes it, if an older wheel does not.
    pub since: Option<EngineVersion>,
    /// First version that no longer takes it.
    pub until: Option<EngineVersion>,
}

/// First version of SGLang whose class refuses keywords in other words than Python does.
const STRUCT: EngineVersion = EngineVersion::new(0, 5, 20);

/// Maximum edit distance at which an unknown name counts as a typo of a keyword.
const SLIP: usize = 2;

/// The fewest characters that a name has for each edit.
const PER_EDIT: usize = 4;

impl Keyword {
    /// Whether the version's class takes it.
    pub fn exists_in(&self, version: EngineVersion) -> bool {
        self.since.is_none_or(|since| since <= version) && self.until.is_none_or(|until| version < until)
    }

    /// The flag that sets the same field, without dashes. No flag has this name if only calls can
    /// set it.
    pub fn flag(&self) -> String {
        self.flag.map_or_else(|| self.name.replace('_', "-"), str::to_owned)
    }
}

impl Callee {
    /// The class of an engine by its name.
    pub fn from_name(engine: Engine, name: &str) -> Option<Self> {
        Some(match (engine, name) {
            (Engine::Sglang, "Engine" | "Runtime" | "ServerArgs") => Self::ServerArgs,
            (Engine::Vllm, "EngineArgs") => Self::EngineArgs,
            (Engine::Vllm, "AsyncEngineArgs") => Self::AsyncEngineArgs,
            (Engine::Vllm, "LLM") => Self::Llm,
            _ => return None,
        })
    }

    /// Whether a keyword is its own, or one that it passes on.
    fn takes(self, keyword: &Keyword) -> bool {
        keyword.class == self || keyword.class == Self::EngineArgs
    }

    fn engine(self) -> Engine {
        if self == Self::ServerArgs { Engine::Sglang } else { Engine::Vllm }
    }

    /// The class that refuses an unknown keyword: `LLM` passes its own on.
    fn refuses(self) -> &'static str {
        match self {
            Self::ServerArgs => "ServerArgs",
            Self::EngineArgs | Self::Llm => "EngineArgs",
            Self::AsyncEngineArgs => "AsyncEngineArgs",
        }
    }

    /// Python's message about an unknown keyword.
    pub fn refusal(self, name: &str, version: EngineVersion) -> String {
        if self == Self::ServerArgs && version >= STRUCT {
            return format!("TypeError: Unexpected keyword argument '{name}'");
        }
        format!("TypeError: {}.__init__() got an unexpected keyword argument '{name}'", self.refuses())
    }

    /// Every keyword of the class, in any version, sorted by name.
    pub fn keywords(self) -> impl Iterator<Item = &'static Keyword> {
        table(self.engine()).iter().filter(move |keyword| self.takes(keyword))
    }

    /// The keyword of exactly this name in a version: that of the class itself or of the one that
    /// it passes it on to. Without a version, of any.
    pub fn keyword(self, name: &str, version: Option<EngineVersion>) -> Option<&'static Keyword> {
        let all = table(self.engine());
        let first = all.partition_point(|keyword| keyword.name < name);
        let own = all.iter().skip(first).take_while(|keyword| keyword.name == name);
        let alive = |keyword: &&Keyword| version.is_none_or(|version| keyword.exists_in(version));
        // The newest one says what is known of all.
        own.filter(|keyword| self.takes(keyword))
            .filter(alive)
            .max_by_key(|keyword| (keyword.until.is_none(), keyword.until, Reverse(keyword.since)))
    }

    /// The keyword, of any version, that sets the same field as a flag (without dashes).
    pub fn keyword_of_flag(self, flag: &str) -> Option<&'static Keyword> {
        let plain = || self.keyword(&flag.replace('-', "_"), None).filter(|keyword| keyword.flag.is_none());
        let other = || self.keywords().find(|keyword| keyword.flag == Some(flag));
        other().or_else(plain)
    }

    /// The keyword that sets the same as a flag in a version.
    pub fn keyword_for(self, key: Key, version: EngineVersion) -> Option<&'static str> {
        let mut keywords = key.flag().names().filter_map(|name| self.keyword_of_flag(name));
        keywords.find(|keyword| keyword.exists_in(version)).map(|keyword| keyword.name)
    }

    /// The keyword that an unknown name stands for: that of the flag which the command line takes
    /// under this name, or the one of which it is a typo.
    pub fn nearest(self, name: &str, version: EngineVersion) -> Option<&'static Keyword> {
        let flag = match self.engine().registered().lookup(&name.replace('_', "-"), None) {
            Lookup::Exact(one) | Lookup::Abbreviation(one) => Some(one.canonical),
            Lookup::Ambiguous(_) | Lookup::Unknown => None,
        };
        let mut alive = self.keywords().filter(|keyword| keyword.exists_in(version));
        if let Some(flag) = flag {
            return alive.find(|keyword| keyword.flag() == flag);
        }
        let near = alive.filter(|keyword| keyword.name.len().abs_diff(name.len()) <= SLIP);
        let near =
            near.map(|keyword| (distance(keyword.name, name), keyword)).min_by_key(|(far, one)| (*far, one.name));
        near.filter(|(far, one)| *far <= SLIP && far * PER_EDIT < one.name.len()).map(|(_, one)| one)
    }
}

/// The keywords of an engine's classes, sorted by name.
fn table(engine: Engine) -> &'static [Keyword] {
    static SGLANG: OnceLock<Vec<Keyword>> = OnceLock::new();
    static VLLM: OnceLock<Vec<Keyword>> = OnceLock::new();
    match engine {
        Engine::Vllm => VLLM.get_or_init(|| read(include_str!("keywords/vllm.tsv"))),
        Engine::Sglang | Engine::Slime | Engine::Spectune => {
            SGLANG.get_or_init(|| read(include_str!("keywords/sglang.tsv")))
        }
    }
}

fn read(table: &'static str) -> Vec<Keyword> {
    table.lines().filter_map(row).collect()
}

fn row(line: &'static str) -> Option<Keyword> {
    let mut columns = line.split('\t');
    let class = match columns.next()? {
        "ServerArgs" => Callee::ServerArgs,
        "EngineArgs" => Callee::EngineArgs,
        "AsyncEngineArgs" => Callee::AsyncEngineArgs,
        "LLM" => Callee::Llm,
        _ => return None,
    };
    let name = columns.next()?;
    let flag = columns.next().filter(|flag| *flag != "-");
    let since = columns.next()?.parse().ok();
    let until = columns.next()?.parse().ok();
    Some(Keyword { class, name, flag, since, until })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: EngineVersion = EngineVersion::new(0, 5, 23);

    #[test]
    fn every_row_is_read_sorted_and_from_the_versions_of_the_flags() {
        let tables = [
            (Engine::Sglang, include_str!("keywords/sglang.tsv"), include_str!("flags/sglang.tsv")),
            (Engine::Vllm, include_str!("keywords/vllm.tsv"), include_str!("flags/vllm.tsv")),
        ];
        for (engine, text, flags) in tables {
            assert_eq!(table(engine).len(), text.lines().filter(|line| !line.starts_with('#')).count());
            assert!(table(engine).is_sorted_by(|one, other| one.name <= other.name));
            assert_eq!(text.lines().next(), flags.lines().next());
        }
    }

    #[test]
    fn a_class_takes_its_own_keywords_and_those_that_it_passes_on() {
        let takes = |callee: Callee, name: &str, version| callee.keyword(name, Some(version)).is_some();
        assert!(takes(Callee::ServerArgs, "tp_size", NEW) && !takes(Callee::ServerArgs, "tp", NEW));
        assert!(!takes(Callee::ServerArgs, "tensor_parallel_size", NEW));
        // Flags kept the old name as an alias, calls did not.
        assert!(takes(Callee::ServerArgs, "cuda_graph_max_bs", EngineVersion::new(0, 5, 13)));
        assert!(!takes(Callee::ServerArgs, "cuda_graph_max_bs", EngineVersion::new(0, 5, 14)));
        let vllm = EngineVersion::new(0, 33, 0);
        assert!(takes(Callee::Llm, "chat_template", vllm) && !takes(Callee::EngineArgs, "chat_template", vllm));
        assert!(takes(Callee::Llm, "tensor_parallel_size", vllm) && !takes(Callee::Llm, "port", vllm));
        assert!(takes(Callee::AsyncEngineArgs, "enable_log_requests", vllm));
        assert!(!takes(Callee::Llm, "enable_log_requests", vllm));
    }

    #[test]
    fn an_unknown_name_is_that_of_a_flag_or_a_typo() {
        let nearest = |name: &str| Callee::ServerArgs.nearest(name, NEW).map(|keyword| keyword.name);
        assert_eq!(nearest("tp"), Some("tp_size"));
        assert_eq!(nearest("tensor_parallel_size"), Some("tp_size"));
        assert_eq!(nearest("speculative_draft_model"), Some("speculative_draft_model_path"));
        assert_eq!(nearest("speculative_num_step"), Some("speculative_num_steps"));
        assert_eq!(nearest("max_running_request"), Some("max_running_requests"));
        assert_eq!(nearest("warm_start_rows"), None);
    }

    #[test]
    fn the_message_is_that_of_the_class_which_refuses() {
        let message = Callee::ServerArgs.refusal("tp", EngineVersion::new(0, 5, 9));
        assert_eq!(message, "TypeError: ServerArgs.__init__() got an unexpected keyword argument 'tp'");
        assert_eq!(Callee::ServerArgs.refusal("tp", NEW), "TypeError: Unexpected keyword argument 'tp'");
        let message = Callee::Llm.refusal("port", EngineVersion::new(0, 33, 0));
        assert_eq!(message, "TypeError: EngineArgs.__init__() got an unexpected keyword argument 'port'");
    }
}
