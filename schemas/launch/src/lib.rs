//! Launches: configurations as users write them for an engine, read from any kind of text, and what
//! the engine makes of them.
//!
//! Everything here is pure, as in `schemas`: text in, launches and findings out, without a severity
//! (`lint` settles it).
#![forbid(unsafe_code)]

mod arguments;
mod by_name;
mod command;
mod comments;
mod compose;
mod condition;
mod context;
mod crlf;
mod detect;
mod dockerfile;
mod document;
mod documents;
mod edit;
mod entry_point;
mod evidence;
mod forks;
mod images;
mod json_text;
mod kind;
mod known_in;
mod launch_file;
mod launcher;
mod listings;
mod makefile;
mod markdown;
mod odd_blanks;
mod origin;
mod other_servers;
mod patch;
pub mod placeholder;
mod print;
mod problems;
mod programs;
mod python;
pub mod resolve;
mod run_options;
mod script;
mod script_words;
mod shell;
mod span_map;
mod template;
mod unit;
mod vllm;
mod writing;
mod yaml;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

pub use comments::comments;
pub use context::TextForm;
pub use forks::Forks;
pub use launcher::Launcher;
pub use run_options::{RunOptions, is_runtime};
pub use shell::unset_names;
pub use unit::working_directory;
pub use vllm::{
    VllmKey, VllmSpeculation,
    runner::{Lack, OLDEST_WITH_RUNNERS, RUNNER_VARIABLE},
};
pub use yaml::{ContainerRun, container_of};

use schemas::{
    algorithm::parse_algorithm,
    engines::{Engine, releases::Day},
    finding::{Doubt, Doubts, Finding},
    flags::{Key, Takes},
    keywords::Callee,
    quoting,
    text::{Located, Source, Span},
    version::EngineVersion,
};

use context::TextContext;
use writing::Writing;

/// Maximum length in bytes of a text that is read. Launches are kilobytes; a longer text is a file
/// given by mistake.
pub const LONGEST_TEXT: usize = 16 << 20;

/// What the caller knows about a text.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The engine of all launches in the text, if the user gives it.
    pub engine: Option<Engine>,
    /// The engine's version, which decides how abbreviations are expanded.
    pub version: Option<EngineVersion>,
    /// Values of variables that the text does not set, to read the words that are run where it is
    /// run. Words that come from them have the place of the variable, so such a launch is not
    /// edited.
    pub variables: Option<Arc<Variables>>,
}

/// Variables that a text does not set itself.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    /// Those of the environment that it runs in.
    pub environment: BTreeMap<String, String>,
    /// Those that have this value whatever the text assigns.
    pub fixed: BTreeMap<String, String>,
}

/// The result of parsing a text.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    /// The launches, in the order of the text.
    pub launches: Vec<Launch>,
    /// What could not be parsed, or is wrong whatever the rest of the launch is.
    pub findings: Vec<Finding>,
}

/// Reads the launches of a text. Never fails: what cannot be read is reported in the findings.
///
/// The text is one of:
/// - spectune's TOML;
/// - a command line, or a shell script with command lines or slime's arrays in it;
/// - YAML: Kubernetes manifests and compose files with containers that start an engine, the
///   `--config` files of SGLang and vLLM, slime's `--sglang-config`, recipes of srt-slurm, and
///   trainers' configurations. Text that could be YAML but contains no launch as such is read as
///   shell;
/// - Python that builds a command line or calls an engine;
/// - a Dockerfile or a systemd unit;
/// - Markdown with code blocks of any of these.
///
/// Here-documents in a script are read too, if they are executed, or written to a file whose name
/// says that it is one of these.
pub fn parse(source: &Source, options: &Options) -> Parsed {
    if source.text().len() > LONGEST_TEXT {
        return problems::too_large(source);
    }
    let kind = kind::TextKind::detect(source);
    let context = TextContext::for_text(source, kind);
    let forks = context.forks;
    let mut parsed = documents::parse(source, kind, context.clone(), options);
    other_servers::drop_theirs(source, &context, &mut parsed);
    evidence::fill_in(source, options, forks, &mut parsed.launches);
    // What the text says of the engine counts for what was found while it was read.
    for launch in parsed.launches.iter().filter(|launch| launch.is_changed) {
        let is_own = |found: &&mut Finding| launch.span.start <= found.span.start && found.span.start < launch.span.end;
        parsed.findings.iter_mut().filter(is_own).for_each(|found| _ = found.doubts.insert(Doubt::Fork));
    }
    odd_blanks::report(source, &mut parsed);
    drop_repeated(&mut parsed);
    crlf::report(source, &mut parsed);
    launcher::tell_apart(source, &mut parsed.launches);
    for launch in parsed.launches.iter_mut().filter(|launch| launch.callee.is_some()) {
        let config = launch.vllm_speculation();
        launch.config_is_call = config.is_some_and(|config| source.slice(config.span).starts_with("dict("));
    }
    parsed
}

/// Drops what is said of a flag and its value in one word, where that they are one is reported.
fn drop_repeated(parsed: &mut Parsed) {
    let whole: Vec<Span> =
        parsed.findings.iter().filter(|one| one.code == problems::NO_SHELL.code).map(|one| one.span).collect();
    let is_within = |span: Span| whole.iter().any(|whole| whole.start <= span.start && span.end <= whole.end);
    parsed.findings.retain(|one| one.code != problems::UNKNOWN_FLAG.code || !is_within(one.span));
}

/// Reads the words of spectune's own command line. The returned source contains them as quoted for
/// a shell, so that findings have a text to point into.
pub fn from_arguments(words: &[String]) -> (Source, Launch) {
    arguments::from_words(words)
}

/// The syntax of a launch, which decides how its fixes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// A command line, possibly over several continued lines.
    CommandLine,
    /// A shell array: `SGLANG_ARGS=( … )`.
    ShellArray,
    /// spectune's TOML.
    Toml,
    /// Words assembled in another language: a list or a call in Python, a command in a Dockerfile.
    /// It has no fixes.
    Composed,
    /// A list of words in YAML: `args` of a Kubernetes container, `command` of a compose service.
    YamlWords,
    /// A YAML file whose keys are flags: the `--config` files of SGLang and vLLM.
    YamlConfig,
    /// A mapping in slime's `--sglang-config`, whose keys override the flags of the command line.
    YamlOverrides,
}

/// Whether a text builds an image: its commands run in that image, not where the text is.
pub fn builds_image(source: &Source) -> bool {
    kind::TextKind::detect(source) == kind::TextKind::Dockerfile
}

/// One launch, as written.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The engine that it is for.
    pub engine: Engine,
    /// What starts the engine.
    pub launcher: Launcher,
    /// How it is written.
    pub syntax: Syntax,
    /// The whole launch in the source; findings about absent flags point at its
    /// [`anchor`](Self::anchor).
    pub span: Span,
    /// The words that represent the launch in a diagnostic: the program's name, or the array's.
    pub anchor: Span,
    /// The words before the first argument, expanded: what starts the engine. Empty if the text
    /// only gives flags.
    pub program: Vec<Located<Value>>,
    /// The flags that spectune knows. If a flag is given several times the last one counts, as in
    /// argparse.
    pub settings: BTreeMap<Key, Setting>,
    /// Every argument in order, known or not.
    pub arguments: Vec<Argument>,
    /// Whether the text is only a part of the launch, so that more flags may be given elsewhere.
    pub is_part: bool,
    /// Flags that the launch may also have, from branches of the script that may not run.
    pub perhaps: BTreeSet<Key>,
    /// Environment variables set on the command or exported before it.
    pub environment: Arc<Environment>,
    /// Whether there may be more variables, set by a file that is not read.
    pub environment_is_open: bool,
    /// The engine's version, if the text states it: in spectune's TOML, an image's tag, or a
    /// requirement that it installs.
    pub engine_version: Option<Located<EngineVersion>>,
    /// Whether that version was found in the surrounding text, so that it may be the one of another
    /// launch.
    pub version_is_inferred: bool,
    /// The latest day that the surrounding text names; it cannot run versions that were published
    /// later.
    pub dated: Option<Day>,
    /// The newest version of the day on which the text was written or the image was built, where no
    /// version is stated and that version has what the launch uses.
    pub version_of_day: Option<EngineVersion>,
    /// The container image that runs it, if the text names one.
    pub image: Option<String>,
    /// Whether the surrounding text describes a modified engine: patches, or a plugin with its own
    /// values.
    pub is_changed: bool,
    /// Whether the text shows, records or tests it, more likely than it runs it as it is written.
    pub is_shown: bool,
    /// Whether a condition excludes it with the values that the text gives: it runs with others,
    /// set from outside.
    pub is_untaken: bool,
    /// Whether a template decides which of its flags are given.
    pub is_templated: bool,
    /// The class of the engine that a program calls with these keywords, if it is certainly the
    /// engine's own.
    pub callee: Option<Callee>,
    /// Whether a program writes its speculative configuration as a call: `dict(method="mtp")`.
    pub config_is_call: bool,
    /// The plugins and forks that the text names.
    pub forks: Forks,
    /// Where and how a flag can be inserted.
    pub(crate) insertion: Insertion,
}

/// Environment variables by name. Launches of a script may share one map.
pub type Environment = BTreeMap<String, Located<Value>>;

/// Where and how a flag can be inserted into a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Insertion {
    /// The byte offset.
    pub at: usize,
    /// Text before the flag, such as a line continuation and indentation.
    pub before: String,
    /// Text after the flag.
    pub after: String,
    /// How the flag is written.
    pub writing: Writing,
}

/// One flag with its values, as written.
#[derive(Clone, Debug)]
pub struct Argument {
    /// The flag as written, with dashes, without `=value`. A word that belongs to no flag is stored
    /// here and also as the only value (see [`is_positional`](Self::is_positional)).
    pub flag: Located<String>,
    /// The flag's meaning, if spectune knows it.
    pub key: Option<Key>,
    /// The flag's values.
    pub values: Vec<Located<Value>>,
    /// Flag and values together.
    pub span: Span,
    /// Whether a branch of the script adds it.
    pub in_branch: bool,
}

/// A flag that spectune knows, as it is set in a launch.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The flag's values.
    pub values: Vec<Located<Value>>,
    /// The span of the flag alone.
    pub flag: Span,
    /// Flag and values together.
    pub span: Span,
    /// The span of all values, including the brackets of a TOML list; `None` for a switch.
    pub value: Option<Span>,
    /// The flag as written, with dashes, so that old spellings can be recognised.
    pub spelling: String,
    /// The span to delete when the flag is removed: flag and values, and the blanks or the line
    /// that would be left empty.
    pub removal: Span,
    /// How a new value is written in place of the old one.
    pub(crate) writing: Writing,
}

/// A word of a launch, with its text as an owned or borrowed string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<T = String> {
    /// A word whose text is known.
    Known(T),
    /// A word, as written, that depends on something set elsewhere, such as `$MODEL_DIR`; rules
    /// that need it are skipped.
    Unknown(T),
}

impl Argument {
    /// The flag as written: a keyword if a program calls a class with it.
    pub fn named(&self, callee: Option<Callee>) -> String {
        let flag = self.flag.value.as_str();
        let Some(callee) = callee else { return flag.to_owned() };
        let name = flag.trim_start_matches('-');
        callee.keyword_of_flag(name).map_or_else(|| name.replace('-', "_"), |keyword| keyword.name.to_owned())
    }

    /// Its first value, if it is given and known.
    pub fn known(&self) -> Option<&str> {
        self.values.first().and_then(|value| value.value.known())
    }

    /// Whether this is a word that belongs to no flag.
    pub fn is_positional(&self) -> bool {
        // A flag with an unknown name, as `--$NAME`, may be anything.
        let itself = |value: &Located<Value>| value.value.known().is_none() && value.value.written() == self.flag.value;
        !arguments::flag_names::is_flag(&self.flag.value) || self.values.first().is_some_and(itself)
    }
}

impl<T: AsRef<str>> Value<T> {
    /// The text, if it is known.
    pub fn known(&self) -> Option<&str> {
        match self {
            Self::Known(text) => Some(text.as_ref()),
            Self::Unknown(_) => None,
        }
    }

    /// The word as written, known or not.
    pub fn written(&self) -> &str {
        match self {
            Self::Known(text) | Self::Unknown(text) => text.as_ref(),
        }
    }
}

impl Setting {
    /// A setting of which it is only known that it may be given.
    pub(crate) fn unknown(place: Span) -> Self {
        Self {
            values: vec![Located::new(Value::Unknown(String::new()), place)],
            flag: place,
            span: place,
            value: None,
            spelling: String::new(),
            removal: place,
            writing: Writing::shell(None),
        }
    }
}

impl Launch {
    /// A launch without arguments, of whose surroundings nothing is known.
    pub(crate) fn empty(engine: Engine, syntax: Syntax, anchor: Span, insertion: Insertion) -> Self {
        Self {
            engine,
            launcher: Launcher::Own,
            syntax,
            span: anchor,
            anchor,
            program: Vec::new(),
            settings: BTreeMap::new(),
            arguments: Vec::new(),
            is_part: false,
            perhaps: BTreeSet::new(),
            environment: Arc::default(),
            environment_is_open: false,
            engine_version: None,
            version_is_inferred: false,
            dated: None,
            version_of_day: None,
            image: None,
            is_changed: false,
            is_shown: false,
            is_untaken: false,
            is_templated: false,
            callee: None,
            config_is_call: false,
            forks: Forks::default(),
            insertion,
        }
    }

    /// The setting of a key, if the launch gives it.
    pub fn setting(&self, key: Key) -> Option<&Setting> {
        self.settings.get(&key)
    }

    /// Whether the launch gives the key at all (even with an unknown value).
    pub fn has(&self, key: Key) -> bool {
        self.settings.contains_key(&key)
    }

    /// The first value of a key, if it is known.
    pub fn text(&self, key: Key) -> Option<Located<&str>> {
        let word = self.setting(key)?.values.first()?;
        Some(Located::new(word.value.known()?, word.span))
    }

    /// SGLang's disaggregation mode, if the engine only prefills or only decodes.
    pub fn disaggregation_mode(&self) -> Option<Located<&str>> {
        self.text(Key::DisaggregationMode).filter(|mode| mode.value != "null")
    }

    /// The value of a key as an integer, if it is one. Sizes may have a suffix (see
    /// [`Takes::Size`]).
    pub fn integer(&self, key: Key) -> Option<Located<i64>> {
        let word = self.text(key)?;
        let number = if key.flag().takes == Takes::Size { size(word.value) } else { word.value.trim().parse().ok() };
        Some(Located::new(number?, word.span))
    }

    /// The value of a key as a count, if it is a non-negative integer.
    pub fn count(&self, key: Key) -> Option<Located<usize>> {
        let number = self.integer(key)?;
        Some(Located::new(usize::try_from(number.value).ok()?, number.span))
    }

    /// Whether all flags are in the text, so that an absent flag is certainly not given. False if
    /// the text is only a part of the launch, names a config file, or has a word such as
    /// `$EXTRA_ARGS` that may contain more flags.
    pub fn is_complete(&self) -> bool {
        if self.is_part || self.has(Key::Config) {
            return false;
        }
        match self.syntax {
            Syntax::Toml => true,
            // The command line may give what the file does not.
            Syntax::YamlConfig => self.has(Key::ModelPath),
            Syntax::YamlOverrides => false,
            Syntax::CommandLine | Syntax::ShellArray | Syntax::YamlWords | Syntax::Composed => {
                self.open_word().is_none()
            }
        }
    }

    /// The first word that may contain flags of the engine, such as `$EXTRA_ARGS`.
    pub fn open_word(&self) -> Option<&Argument> {
        let may_hold_flags = |argument: &Argument| match argument.values.first().map(|value| &value.value) {
            Some(Value::Unknown(text)) => {
                let text = text.to_ascii_lowercase();
                let says_so = ["sglang", "spec", "extra", "$@", "...", "…"].iter().any(|part| text.contains(part));
                // In a slime script, `${MODEL_ARGS[@]}` and similar arrays contain Megatron's
                // flags.
                self.engine != Engine::Slime || says_so
            }
            _ => false,
        };
        self.arguments.iter().find(|argument| argument.is_positional() && may_hold_flags(argument))
    }

    /// Whether the engine may be a fork with different flags and values: the text describes a
    /// modified engine, or names an image that no project of the engine publishes.
    pub fn may_be_fork(&self) -> bool {
        self.is_changed || self.image.as_deref().is_some_and(|image| !images::is_published(image))
    }

    /// Why the launch may not be run as it is written.
    pub fn doubts(&self) -> Doubts {
        let doubts = [
            (Doubt::Fork, self.may_be_fork()),
            (Doubt::Wrapper, self.launcher == Launcher::Wrapper),
            (Doubt::Untaken, self.is_untaken),
            (Doubt::Template, self.is_templated),
            (Doubt::Shown, self.is_shown),
        ];
        doubts.into_iter().filter(|(_, is_so)| *is_so).map(|(doubt, _)| doubt).collect()
    }

    /// Whether an edit of this launch can be written in the user's text.
    pub fn is_editable(&self) -> bool {
        self.syntax != Syntax::Composed
    }

    /// The value of an environment variable, if it is known.
    pub fn variable(&self, name: &str) -> Option<Located<&str>> {
        let variable = self.environment.get(name)?;
        Some(Located::new(variable.value.known()?, variable.span))
    }

    /// Whether an environment variable is certainly not set by anything in the text.
    pub fn lacks_variable(&self, name: &str) -> bool {
        !self.environment_is_open && !self.environment.contains_key(name)
    }

    /// The value of a key as a number, if it is one.
    pub fn number(&self, key: Key) -> Option<Located<f64>> {
        let word = self.text(key)?;
        Some(Located::new(word.value.parse().ok()?, word.span))
    }

    /// Whether a draft that the launch names is loaded, or may be: text look-ups load none, and
    /// neither does a launch that switches no speculation on.
    pub fn loads_draft(&self, version: EngineVersion) -> bool {
        if self.engine == Engine::Vllm {
            return self.vllm_speculation().is_none_or(|config| config.loads_draft());
        }
        let key = Key::SpeculativeAlgorithm;
        let may_be_elsewhere = self.perhaps.contains(&key) || !self.is_complete() || self.has(Key::SglangConfig);
        if !self.has(key) && !may_be_elsewhere {
            return false;
        }
        let name = self.text(key);
        if self.captures_without_draft() || name.is_some_and(|name| resolve::turns_off(name.value, version)) {
            return false;
        }
        name.and_then(|name| parse_algorithm(name.value, version)).is_none_or(|(algorithm, _)| algorithm.loads_draft())
    }

    /// Whether SGLang captures states of the target and drafts nothing: the algorithm only names
    /// the layers' convention then (`arg_groups/validation_hook.py`, since 0.5.23).
    pub fn captures_without_draft(&self) -> bool {
        let argument = self.argument("enable-return-aux-hidden-states");
        self.engine != Engine::Vllm && argument.is_some_and(|argument| argument.known() != Some("false"))
    }

    /// All values of a key as integers; `None` if one of them is unknown or not an integer.
    pub fn integers(&self, key: Key) -> Option<Vec<Located<i64>>> {
        let words = &self.setting(key)?.values;
        words.iter().map(|word| Some(Located::new(word.value.known()?.parse().ok()?, word.span))).collect()
    }
}

/// Parses an integer with a decimal (`k`, `M`, `G`, `T`) or binary (`Ki`, `Mi`, `Gi`, `Ti`) suffix;
/// only decimal suffixes allow a fraction. SGLang `utils/common.py`, `human_readable_int`.
fn size(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let digits = text.find(|character: char| !character.is_ascii_digit() && character != '.')?;
    let (number, suffix) = text.split_at(digits);
    let place = |letter: &str| "kMGT".find(letter).filter(|_| letter.len() == 1);
    match suffix.strip_suffix('i') {
        Some(letter) => {
            let power = ["K", "M", "G", "T"].iter().position(|known| *known == letter)?;
            number.parse::<i64>().ok()?.checked_mul(1 << (10 * (power + 1)))
        }
        None => {
            let scale = 10_f64.powi(3 * (i32::try_from(place(suffix)?).ok()? + 1));
            let value = number.parse::<f64>().ok()? * scale;
            // The engine truncates too; the bound keeps the conversion exact.
            (value.is_finite() && value < 9e15).then_some(value as i64)
        }
    }
}

#[cfg(test)]
mod tests {
    mod documents;
    mod pasted;
    mod published;
    mod ray;
    mod scripts;
    mod toml;
    mod written;
    mod yaml;

    use super::*;

    #[test]
    fn sizes_carry_decimal_and_binary_suffixes() {
        for (text, expected) in [
            ("8192", Some(8192)),
            ("-1", Some(-1)),
            ("8k", Some(8000)),
            ("8Ki", Some(8192)),
            ("25.6k", Some(25600)),
            ("1.5Ki", None),
            ("8K", None),
            ("k", None),
            ("9999999999999T", None),
            ("", None),
        ] {
            assert_eq!(size(text), expected, "{text}");
        }
    }
}
