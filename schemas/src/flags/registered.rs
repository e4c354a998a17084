//! Every flag that the engines' own parsers register, so that a launch is split into flags and
//! values in the same way as by the engine.
//!
//! The tables were read from wheels on PyPI by `schemas/scripts/read_flags.py`; the first line of
//! each names the versions. A `-` in the column `since` means that the oldest of them already has
//! the flag, in the column `until` that the newest of them still has it.

use std::{collections::HashMap, sync::OnceLock};

use crate::version::EngineVersion;

/// The number of words that follow a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// A switch.
    None,
    /// At most one word.
    Optional,
    /// One word.
    One,
    /// All words up to the next flag.
    Several,
}

/// A spelling of a flag that some version of an engine's parser accepts.
#[derive(Clone, Copy, Debug)]
pub struct Spelling {
    /// Without dashes.
    pub name: &'static str,
    /// The number of words that follow it.
    pub arity: Arity,
    /// First version that has it, if an older wheel lacks it.
    pub since: Option<EngineVersion>,
    /// First version that no longer has it.
    pub until: Option<EngineVersion>,
    /// The name of the argument that it sets: the same, or the one that it is an alias of.
    pub canonical: &'static str,
}

impl Spelling {
    /// Whether the version's parser has it.
    pub fn exists_in(&self, version: EngineVersion) -> bool {
        self.since.is_none_or(|since| since <= version) && self.until.is_none_or(|until| version < until)
    }
}

/// How an engine's parser interprets a flag.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// It is registered under exactly this name.
    Exact(&'static Spelling),
    /// It is the prefix of exactly one argument's name, which argparse accepts for the full name.
    Abbreviation(&'static Spelling),
    /// It is the prefix of several arguments' names; argparse refuses it.
    Ambiguous(Vec<&'static Spelling>),
    /// No such flag.
    Unknown,
}

/// The flags of one engine.
#[derive(Debug)]
pub struct Registered {
    spellings: Vec<Spelling>,
    versions: Vec<EngineVersion>,
}

/// The flags of SGLang's server.
pub fn sglang() -> &'static Registered {
    static SGLANG: OnceLock<Registered> = OnceLock::new();
    SGLANG.get_or_init(|| Registered::read(include_str!("sglang.tsv")))
}

/// The flags of `vllm serve`. Names are written with dashes; vLLM also accepts underscores.
pub fn vllm() -> &'static Registered {
    static VLLM: OnceLock<Registered> = OnceLock::new();
    VLLM.get_or_init(|| Registered::read(include_str!("vllm.tsv")))
}

/// The aliases of an argument of SGLang, sorted.
pub(super) fn aliases(name: &str) -> &'static [&'static str] {
    static ALIASES: OnceLock<HashMap<&'static str, Vec<&'static str>>> = OnceLock::new();
    let all = || {
        let mut all: HashMap<&'static str, Vec<&'static str>> = HashMap::new();
        for spelling in spellings().iter().filter(|spelling| spelling.name != spelling.canonical) {
            all.entry(spelling.canonical).or_default().push(spelling.name);
        }
        all
    };
    ALIASES.get_or_init(all).get(name).map_or(&[], Vec::as_slice)
}

/// All spellings of SGLang, sorted by name.
pub fn spellings() -> &'static [Spelling] {
    sglang().spellings()
}

/// [`Registered::spelling`] of SGLang.
pub fn spelling(name: &str) -> Option<&'static Spelling> {
    sglang().spelling(name)
}

/// [`Registered::lookup`] of SGLang.
pub fn lookup(name: &str, version: Option<EngineVersion>) -> Lookup {
    sglang().lookup(name, version)
}

impl Registered {
    fn read(table: &'static str) -> Self {
        let versions = table.lines().find_map(|line| line.strip_prefix("# read from ")).unwrap_or_default();
        Self {
            spellings: table.lines().filter_map(row).collect(),
            versions: versions.split(", ").filter_map(|version| version.parse().ok()).collect(),
        }
    }

    /// All spellings, sorted by name.
    pub fn spellings(&self) -> &[Spelling] {
        &self.spellings
    }

    /// The versions whose parsers were read, oldest first.
    pub fn versions(&self) -> &[EngineVersion] {
        &self.versions
    }

    /// The spelling with exactly this name (without dashes), in any version.
    pub fn spelling(&'static self, name: &str) -> Option<&'static Spelling> {
        let place = self.spellings.binary_search_by(|spelling| spelling.name.cmp(name)).ok()?;
        self.spellings.get(place)
    }

    /// How the parser of a version interprets a flag, including abbreviations. Without a version,
    /// the spellings of all versions count.
    pub fn lookup(&'static self, name: &str, version: Option<EngineVersion>) -> Lookup {
        let alive = |spelling: &&Spelling| version.is_none_or(|version| spelling.exists_in(version));
        if let Some(exact) = self.spelling(name).filter(alive) {
            return Lookup::Exact(exact);
        }
        // Every name begins with an empty one.
        if name.is_empty() {
            return Lookup::Unknown;
        }
        // The table is sorted, so all names with this beginning follow one another.
        let first = self.spellings.partition_point(|spelling| spelling.name < name);
        let beginning = self.spellings.iter().skip(first).take_while(|spelling| spelling.name.starts_with(name));
        let candidates: Vec<&Spelling> = beginning.filter(alive).collect();
        // Two spellings of the same argument are not ambiguous: argparse compares the actions.
        match candidates.split_first() {
            None => Lookup::Unknown,
            Some((one, rest)) if rest.iter().all(|other| other.canonical == one.canonical) => Lookup::Abbreviation(one),
            Some(_) => Lookup::Ambiguous(candidates),
        }
    }
}

fn row(line: &'static str) -> Option<Spelling> {
    let mut columns = line.split('\t');
    let name = columns.next().filter(|name| !name.starts_with('#') && !name.is_empty())?;
    let arity = match columns.next()? {
        "switch" => Arity::None,
        "optional" => Arity::Optional,
        "value" => Arity::One,
        "values" => Arity::Several,
        _ => return None,
    };
    let since = columns.next()?.parse().ok();
    let until = columns.next()?.parse().ok();
    let canonical = columns.next().filter(|canonical| *canonical != "-").unwrap_or(name);
    Some(Spelling { name, arity, since, until, canonical })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: EngineVersion = EngineVersion::new(0, 4, 7);
    const NEW: EngineVersion = EngineVersion::new(0, 5, 23);

    #[test]
    fn every_row_of_the_file_is_read_and_sorted() {
        for (engine, table) in [(sglang(), include_str!("sglang.tsv")), (vllm(), include_str!("vllm.tsv"))] {
            let rows = table.lines().filter(|line| !line.starts_with('#')).count();
            assert_eq!(engine.spellings().len(), rows);
            assert!(engine.spellings().windows(2).all(|pair| pair[0].name < pair[1].name));
            assert!(engine.spellings().iter().all(|one| engine.spelling(one.canonical).is_some()));
            assert!(engine.versions().len() > 20 && engine.versions().is_sorted());
        }
    }

    #[test]
    fn all_tables_of_an_engine_are_read_from_the_same_versions() {
        let first = |table: &'static str| table.lines().next().unwrap_or_default();
        let check = |tables: &[&'static str]| {
            assert!(tables.windows(2).all(|pair| first(pair[0]) == first(pair[1])), "{:?}", first(tables[0]));
        };
        check(&[
            include_str!("sglang.tsv"),
            include_str!("sglang_values.tsv"),
            include_str!("../variables/sglang.tsv"),
        ]);
        check(&[
            include_str!("vllm.tsv"),
            include_str!("vllm_values.tsv"),
            include_str!("vllm_speculative.tsv"),
            include_str!("../variables/vllm.tsv"),
        ]);
    }

    fn check(name: &str, version: Option<EngineVersion>, expected: &str) {
        let found = match lookup(name, version) {
            Lookup::Exact(one) => format!("exact {}", one.canonical),
            Lookup::Abbreviation(one) => format!("short for {}", one.canonical),
            Lookup::Ambiguous(several) => format!("one of {}", several.len()),
            Lookup::Unknown => "unknown".into(),
        };
        assert_eq!(found, expected, "--{name} in {version:?}");
    }

    #[test]
    fn names_are_found_as_argparse_finds_them() {
        check("tp", Some(NEW), "short for tp-size");
        check("tensor-parallel-size", Some(NEW), "exact tp-size");
        check("speculative-algo", Some(NEW), "short for speculative-algorithm");
        check("speculative-draft", Some(OLD), "short for speculative-draft-model-path");
        check("cuda-graph-max-bs", Some(NEW), "one of 2");
        check("cuda-graph-max-bs", Some(OLD), "exact cuda-graph-max-bs");
        check("context-len", None, "short for context-length");
        check("no-such-flag", None, "unknown");
        check("", None, "unknown");
    }
}
