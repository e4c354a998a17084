//! Which versions of an engine support what a launch uses: its flags, and the keys and method of
//! vLLM's speculative configuration. Anything that no version knows is not evidence for a version.

use schemas::{
    algorithm::parse_algorithm,
    flags::{Key, Lookup, Speculative},
    version::EngineVersion,
};

use super::{Argument, Engine, Launch};

impl Launch {
    /// Whether a version's parser, or the class that is called, accepts every flag of the launch
    /// that any version accepts.
    pub fn has_flags_of(&self, version: EngineVersion) -> bool {
        let registered = self.engine.registered();
        let around = self.read_around(version);
        if let Some(callee) = self.callee {
            let own = self.arguments.iter().filter(|argument| !argument.is_positional());
            let mut known = own.filter_map(|own| callee.keyword_of_flag(own.flag.value.trim_start_matches('-')));
            return known.all(|known| around.iter().any(|one| callee.keyword(known.name, Some(*one)).is_some()));
        }
        let is_flag = |name: &String| !matches!(registered.lookup(name, None), Lookup::Unknown);
        let has = |name: &str, version: EngineVersion| {
            matches!(registered.lookup(name, Some(version)), Lookup::Exact(_) | Lookup::Abbreviation(_))
        };
        let takes = |name: String| around.iter().any(|version| has(&name, *version));
        self.arguments.iter().filter_map(|argument| name(self.engine, argument)).filter(is_flag).all(takes)
    }

    /// Whether a version knows the method and every key of vLLM's speculative configuration, and
    /// the words of flags that take one of a list, except those that no version knows.
    pub fn has_words_of(&self, version: EngineVersion) -> bool {
        self.has_configuration_of(version) && self.has_choices_of(version) && self.has_algorithm_of(version)
    }

    fn has_algorithm_of(&self, version: EngineVersion) -> bool {
        let given = self.text(Key::SpeculativeAlgorithm).filter(|_| self.engine != Engine::Vllm);
        let known = given.and_then(|name| parse_algorithm(name.value, version));
        known.and_then(|(algorithm, _)| algorithm.since()).is_none_or(|since| since <= version)
    }

    /// Whether a version's parser accepts every word of flags that take one of a list.
    fn has_choices_of(&self, version: EngineVersion) -> bool {
        let registered = self.engine.registered();
        let version = self.read_from(version);
        let takes = |argument: &Argument| {
            let (Lookup::Exact(spelling) | Lookup::Abbreviation(spelling)) =
                registered.lookup(&name(self.engine, argument)?, Some(version))
            else {
                return None;
            };
            let accepted = registered.accepted(spelling.canonical).filter(|accepted| accepted.has_list_in(version))?;
            let is_lacking = |word: &str| {
                let mut known = accepted.words.iter().filter(|known| known.text == word).peekable();
                known.peek().is_some() && !known.any(|known| known.exists_in(version))
            };
            Some(!argument.values.iter().filter_map(|word| word.value.known()).any(is_lacking))
        };
        self.arguments.iter().all(|argument| takes(argument).unwrap_or(true))
    }

    fn has_configuration_of(&self, version: EngineVersion) -> bool {
        let Some(config) = self.vllm_speculation() else { return true };
        let version = self.read_from(version);
        let has = |kind: Speculative, text: &str| kind.word(text).is_none_or(|word| word.exists_in(version));
        config.keys.keys().all(|key| has(Speculative::Key, key))
            && config.method.as_deref().is_none_or(|method| has(Speculative::Method, method))
    }

    /// The version itself if its parser was read, otherwise those on either side of it that were:
    /// what only one of them has may have come, or gone, with any version between them.
    fn read_around(&self, version: EngineVersion) -> Vec<EngineVersion> {
        let read = self.engine.registered().versions();
        if read.contains(&version) {
            return vec![version];
        }
        let before = read.iter().rev().find(|read| **read < version);
        before.copied().into_iter().chain([self.read_from(version)]).collect()
    }

    /// The version itself if its parser was read, otherwise the next one that was: what that one
    /// has and the one before lacks may have come with any version between them.
    fn read_from(&self, version: EngineVersion) -> EngineVersion {
        let read = self.engine.registered().versions();
        read.iter().find(|read| version <= **read).copied().unwrap_or(version)
    }
}

/// A flag's name for its engine's parser: without dashes and without a key after a dot. vLLM's
/// parser accepts underscores in place of dashes.
fn name(engine: Engine, argument: &Argument) -> Option<String> {
    let flag = argument.flag.value.as_str();
    let name = flag.strip_prefix("--sglang-").or_else(|| flag.strip_prefix("--"))?;
    let name = name.split('.').next().unwrap_or(name);
    Some(if engine == Engine::Vllm { name.replace('_', "-") } else { name.to_owned() })
}
