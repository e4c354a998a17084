//! Findings before their severity is settled.
//!
//! A reader or a rule states the *harm* of a case: the severity if everything that was read and
//! assumed is true. What may not be true is recorded as data: the [`Doubt`]s of a finding, and what
//! it depends on ([`Depends`]). [`settle`] is the only code that turns them into a severity.

mod settle;

use std::collections::BTreeSet;

pub use settle::{Verdict, settle, settle_all};

use crate::{
    diagnostic::{Edit, Fix, Related, Safety, Severity},
    engines::Engine,
    model::ModelFacts,
    text::Span,
};

/// A finding of a reader or a rule, without a settled severity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The code of the rule or problem, such as `SD070`.
    pub code: &'static str,
    /// Its name, such as `dtype-mismatch`.
    pub name: &'static str,
    /// The severity if everything holds that it depends on.
    pub harm: Severity,
    /// One sentence, lower case, without a full stop: what will happen.
    pub message: String,
    /// The place of the finding.
    pub span: Span,
    /// A few words that are printed under the marked place.
    pub label: String,
    /// Other places that explain the finding.
    pub related: Vec<Related>,
    /// Facts printed after the finding.
    pub notes: Vec<String>,
    /// What to do, in the imperative.
    pub help: Option<String>,
    /// Edits that do what `help` says.
    pub fix: Option<Fix>,
    /// What it depends on.
    pub depends: Depends,
    /// What may not be as it was read.
    pub doubts: Doubts,
}

/// What a finding depends on and that may be uncertain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depends {
    /// The engine's version: if none is stated, a note says which one was assumed.
    pub version: bool,
    /// An abbreviation that stands for several flags: a version older than the known ones may have
    /// only one of them.
    pub abbreviation: bool,
    /// The flags and values that the engine has: a fork may have others.
    pub engine: bool,
    /// That no program in front of the engine has a flag of this name: no known flag is close to
    /// it.
    pub unknown_name: bool,
    /// How lines and blanks are split into words, whatever program takes them.
    pub lines: bool,
    /// Which words follow a flag.
    pub words: bool,
    /// How quotes are read.
    pub quoting: bool,
    /// Which names plugins have registered.
    pub plugin: bool,
}

/// Why a text may not be run as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Doubt {
    /// The launch is for spectune's engine; the finding is about another one.
    OtherEngine,
    /// The engine may be a fork: the text describes a modified engine, or its image is of no known
    /// project.
    Fork,
    /// The text names a plugin or a fork that may have this flag.
    FlagOfFork,
    /// A release that is not known may have it.
    OtherRelease,
    /// A variable or a template may supply what is missing.
    SetElsewhere,
    /// Something other than a shell may split lines into words.
    OtherSplitter,
    /// The file is of a format whose words are not those of a shell.
    OtherFormat,
    /// Quotes may be read by something other than a shell, or together with text that is elsewhere.
    OtherQuoting,
    /// The program before the engine may have flags of its own.
    OwnFlags,
    /// Something other than the known container runtimes may start the image, and add to its
    /// command.
    OtherRuntime,
    /// The image is known as it is today; older ones may differ.
    OtherImage,
    /// The class of the target or the draft is known only by its name.
    ModelByName,
    /// An unknown program takes the flags.
    Wrapper,
    /// A condition excludes the launch with the values that the text gives.
    Untaken,
    /// A template decides which parts of the launch exist.
    Template,
    /// The text shows, records or tests the launch.
    Shown,
}

/// A set of doubts.
pub type Doubts = BTreeSet<Doubt>;

impl Finding {
    /// A finding at a place, with a one-sentence message and a short label for the place.
    pub fn new(span: Span, message: impl Into<String>, label: impl Into<String>) -> Self {
        Self {
            code: "",
            name: "",
            harm: Severity::Error,
            message: message.into(),
            span,
            label: label.into(),
            related: Vec::new(),
            notes: Vec::new(),
            help: None,
            fix: None,
            depends: Depends::default(),
            doubts: Doubts::new(),
        }
    }

    /// Gives it the code and the name of what it is an instance of, whose harm is at most `harm`.
    pub fn with_code(mut self, code: &'static str, name: &'static str, harm: Severity) -> Self {
        // A rule may have lowered the harm of this one finding already.
        (self.code, self.name, self.harm) = (code, name, self.harm.min(harm));
        self
    }

    /// Caps the harm, for cases that are less severe than the others of its code.
    pub fn at_most(mut self, harm: Severity) -> Self {
        self.harm = self.harm.min(harm);
        self
    }

    /// Adds a doubt.
    pub fn doubt(mut self, doubt: Doubt) -> Self {
        self.doubts.insert(doubt);
        self
    }

    /// Adds a note.
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// Adds a note, if there is one.
    pub fn maybe_note(self, text: Option<String>) -> Self {
        match text {
            Some(text) => self.note(text),
            None => self,
        }
    }

    /// Adds a note that quotes an engine's exact message.
    pub fn engine_says(self, engine: Engine, text: impl AsRef<str>) -> Self {
        self.note(format!("{engine} says: `{}`", text.as_ref()))
    }

    /// Adds a note that quotes SGLang's exact message.
    pub fn sglang_says(self, text: impl AsRef<str>) -> Self {
        self.engine_says(Engine::Sglang, text)
    }

    /// Adds a note that quotes vLLM's exact message.
    pub fn vllm_says(self, text: impl AsRef<str>) -> Self {
        self.engine_says(Engine::Vllm, text)
    }

    /// Adds advice.
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }

    /// Adds another place that explains the finding.
    pub fn related(mut self, span: Option<Span>, label: impl Into<String>) -> Self {
        // The finding's own place has its own label.
        let elsewhere = span.filter(|span| *span != self.span);
        self.related.extend(elsewhere.map(|span| Related { span, label: label.into() }));
        self
    }

    /// Adds edits that remove the finding.
    pub fn fix(mut self, safety: Safety, description: impl Into<String>, edits: Vec<Edit>) -> Self {
        if !edits.is_empty() {
            self.fix = Some(Fix { description: description.into(), safety, edits });
        }
        self
    }

    /// Marks the finding as based on facts of a model (`who` is `target` or `draft`), and notes
    /// their source if the checkpoint itself was not read.
    pub fn on_facts(self, who: &str, facts: Option<&ModelFacts>) -> Self {
        let partial = facts.filter(|facts| facts.partial);
        self.maybe_note(partial.map(|facts| format!("facts of the {who} {}: {}", facts.name, facts.origin)))
    }

    /// Marks the finding as dependent on the engine's version.
    pub fn by_version(mut self) -> Self {
        self.depends.version = true;
        self
    }

    /// Marks the finding as dependent on the flags that an abbreviation may stand for.
    pub fn by_abbreviation(mut self) -> Self {
        self.depends.abbreviation = true;
        self
    }

    /// Marks the finding as dependent on how lines are split into words.
    pub fn by_lines(mut self) -> Self {
        self.depends.lines = true;
        self
    }

    /// Marks the finding as dependent on which words follow a flag.
    pub fn by_words(mut self) -> Self {
        self.depends.words = true;
        self
    }

    /// Marks the finding as dependent on how quotes are read.
    pub fn by_quoting(mut self) -> Self {
        self.depends.quoting = true;
        self
    }

    /// Marks the finding as one about a name that a plugin could register, and that is no slip of a
    /// known name.
    pub fn by_plugin(mut self) -> Self {
        self.depends.plugin = true;
        self
    }

    /// Marks the finding as dependent on the flags and values of the engine itself.
    pub fn by_engine(mut self) -> Self {
        self.depends.engine = true;
        self
    }
}
