//! A launch from the words of a command.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use schemas::{
    finding::{Doubt, Finding},
    flags::Key,
    text::{Located, Source, Span},
};

use super::{
    super::{
        Argument, Engine, Launch, Launcher, Options, Setting, Syntax, Value,
        command::{Field, ShellCommand},
        context::TextContext,
        detect::{self, Detected, MOST_WORDS},
        entry_point::{self, Runner},
        forks::Forks,
        problems, programs, vllm,
        writing::Writing,
    },
    flag_names::FlagNames,
    json_values, numbers, place, split, unknown,
};

/// Builds the launches of one text.
pub(super) struct LaunchBuilder<'a> {
    pub source: &'a Source,
    pub context: &'a TextContext,
    pub options: &'a Options,
}

impl LaunchBuilder<'_> {
    /// The launch of a command. What is wrong with its words is added to `findings`.
    pub fn launch(&self, command: &ShellCommand<'_>, detected: &Detected, findings: &mut Vec<Finding>) -> Launch {
        let engine = detected.engine;
        let overrides;
        let mut words = command.words.get(detected.first_argument..).unwrap_or_default();
        if detected.launcher == Launcher::Hydra {
            overrides = detect::as_flags(|span| self.source.slice(span), words, engine);
            words = &overrides;
        }
        let words = self.cut(words, findings);
        self.check_entry_point(command, findings);
        let stated = command.version.filter(|stated| stated.is_of(engine)).map(|stated| stated.version);
        let version = self.options.version.or(stated.map(|version| version.value));
        let mut troubles = Vec::new();
        let before = detected.first_argument.checked_sub(1).and_then(|last| command.words.get(last));
        let is_after_serve = before.is_some_and(|word| word.value.known() == Some("serve"));
        let is_command_line = detected.launcher == Launcher::Own
            && detected.is_sure
            && self.context.callee.is_none()
            && !command.is_variable;
        let names = FlagNames { engine, version, callee: self.context.callee, is_command_line, is_after_serve };
        let mut arguments = split::split(self.source, words, names, &mut troubles);
        if engine == Engine::Vllm {
            split::positional_model(&mut arguments, names);
        }
        for argument in &mut arguments {
            argument.in_branch = command.branches.contains(&argument.flag.span);
        }
        // A page that lists flags for its readers leaves values out.
        let is_mentioned = detected.is_bare && self.context.is_page();
        self.sort_out_missing(&mut troubles, is_mentioned);
        self.check(command, detected, &arguments, troubles, findings);
        let syntax = if detected.array.is_some() { Syntax::ShellArray } else { Syntax::CommandLine };
        let whole = || command.words.iter().map(|word| word.span).reduce(Span::join).unwrap_or(detected.anchor);
        let span = detected.array.unwrap_or_else(whole);
        let mut settings = settings(self.source, &arguments, syntax);
        let perhaps = self.perhaps(command, names, &mut arguments, &mut settings);
        if engine == Engine::Vllm {
            settings.extend(vllm::draft_setting(&arguments));
        }
        let mut insertion = place::insertion(self.source, &arguments, syntax, engine, span);
        if self.context.callee.is_some() {
            insertion.writing = Writing::keywords();
        }
        let is_part = !detected.is_sure
            || command.is_part(detected.array.is_some())
            || detected.launcher == Launcher::Hydra
            || is_mentioned;
        Launch {
            engine,
            launcher: detected.launcher,
            syntax,
            span,
            anchor: detected.anchor,
            program: program(command, detected.first_argument),
            settings,
            arguments,
            is_part,
            perhaps,
            environment: Arc::clone(&command.surroundings.environment),
            environment_is_open: command.surroundings.is_open,
            engine_version: stated,
            version_is_inferred: false,
            dated: None,
            version_of_day: None,
            image: command.surroundings.image.clone(),
            is_changed: false,
            is_shown: is_mentioned,
            is_untaken: command.is_untaken,
            is_templated: false,
            callee: self.context.callee,
            config_is_call: false,
            forks: Forks::default(),
            insertion,
        }
    }

    /// The words up to the input of GNU parallel, or up to the limit.
    fn cut<'w, 'f>(&self, words: &'w [Field<'f>], findings: &mut Vec<Finding>) -> &'w [Field<'f>] {
        // A quoted word is a value.
        let ends = |word: &Field<'_>| {
            let text = word.value.known().filter(|text| *text == self.source.slice(word.span));
            text.is_some_and(|text| matches!(text, ":::" | "::::"))
        };
        // GNU parallel: what follows are inputs of which each makes a command.
        let end = words.iter().position(ends).unwrap_or(words.len());
        if let Some(first) = words.get(MOST_WORDS).filter(|_| end > MOST_WORDS) {
            findings.push(problems::too_many_words(first.span, MOST_WORDS));
        }
        words.get(..end.min(MOST_WORDS)).unwrap_or_default()
    }

    /// Reports the first word after an image whose entry point does not take it.
    fn check_entry_point(&self, command: &ShellCommand<'_>, findings: &mut Vec<Finding>) {
        let passed = command.passed_to.as_ref().map(|(image, first)| (image.as_str(), first));
        let given = detect::image_with_own_entry_point(&command.words).or(passed);
        if let Some((image, first)) = given
            && let Some(word) = first.value.known()
        {
            findings.extend(entry_point::check(image, word, first.span, Runner::Docker));
        }
    }

    /// A variable that is set elsewhere or a template may supply a missing value, and a page that
    /// mentions flags leaves values out.
    fn sort_out_missing(&self, troubles: &mut Vec<Finding>, is_mentioned: bool) {
        let is_missing = |trouble: &Finding| trouble.code == problems::MISSING_VALUE.code;
        // A value in quotes on the next line: what splits the lines is not this text's shell.
        let is_below = |trouble: &Finding| {
            let after = self.source.text().get(trouble.span.end..).unwrap_or_default();
            let next = after.trim_start();
            after.get(..after.len() - next.len()).is_some_and(|blanks| blanks.contains('\n'))
                && next.starts_with(['\'', '"', '{', '['])
        };
        troubles.retain(|trouble| !is_missing(trouble) || (!is_mentioned && !is_below(trouble)));
        for trouble in troubles.iter_mut().filter(|trouble| is_missing(trouble)) {
            let after = self.source.text().get(trouble.span.end..).unwrap_or_default();
            if after.trim_start_matches([' ', '\t', '=', '"']).starts_with(['$', '{', '<']) {
                trouble.doubts.insert(Doubt::SetElsewhere);
            }
        }
    }

    /// Checks flags and values as the engine's parser does.
    fn check(
        &self,
        command: &ShellCommand<'_>,
        detected: &Detected,
        arguments: &[Argument],
        mut troubles: Vec<Finding>,
        findings: &mut Vec<Finding>,
    ) {
        if detected.engine == Engine::Vllm {
            findings.push(problems::vllm_unread(detected.anchor));
            // Whether a word belongs to a flag that another program reads is unknown.
            let is_read = detected.launcher == Launcher::Own && detected.is_sure && !is_over_ssh(command, detected);
            troubles.retain(|trouble| is_read || trouble.code == problems::MISSING_VALUE.code);
            findings.append(&mut troubles);
            let mut wrong = vllm::bad_values(self.source, self.context, arguments, false);
            wrong.extend(self.bad_json(command, detected, arguments));
            doubt_quoting(command, detected, &mut wrong);
            findings.append(&mut wrong);
            numbers::bad_values(arguments, detected.engine, self.context.callee, findings);
            return;
        }
        // What runs is not certain, so flags that it does not know may be right.
        if !detected.is_sure || detected.launcher == Launcher::Hydra {
            return;
        }
        findings.append(&mut troubles);
        // Benchmarks accept the server's flags and additional ones.
        if detected.launcher == Launcher::Benchmark {
            return;
        }
        let mut found = Vec::new();
        // Keywords of a call are those of a version: a rule compares them.
        if self.context.callee.is_none() {
            unknown::report(arguments, detected.engine, &self.context.forks, &mut found);
        }
        if detected.launcher == Launcher::Dynamo || is_own_front_end(command, detected) {
            found.iter_mut().for_each(|one| _ = one.doubts.insert(Doubt::OwnFlags));
        }
        found.extend(self.bad_json(command, detected, arguments));
        doubt_quoting(command, detected, &mut found);
        findings.append(&mut found);
        numbers::bad_values(arguments, detected.engine, self.context.callee, findings);
    }

    /// JSON that the engine cannot read.
    fn bad_json(&self, command: &ShellCommand<'_>, detected: &Detected, arguments: &[Argument]) -> Vec<Finding> {
        let stated = command.version.filter(|stated| stated.is_of(detected.engine));
        let version = self.options.version.or(stated.map(|stated| stated.version.value));
        json_values::bad_json(self.source, self.context, arguments, detected.engine, version)
    }

    /// Flags that may also be given. For flags that are already given, the value becomes unknown.
    fn perhaps(
        &self,
        command: &ShellCommand<'_>,
        names: FlagNames,
        arguments: &mut Vec<Argument>,
        settings: &mut BTreeMap<Key, Setting>,
    ) -> BTreeSet<Key> {
        let words = command.perhaps.get(..MOST_WORDS).unwrap_or(&command.perhaps);
        let mut keys = BTreeSet::new();
        for argument in split::split(self.source, words, names, &mut Vec::new()) {
            keys.extend(argument.key);
            // It may hold any flag, there as here.
            if argument.is_positional() && argument.values.iter().any(|value| value.value.known().is_none()) {
                arguments.push(argument);
            }
        }
        for (_, setting) in settings.iter_mut().filter(|(key, _)| keys.contains(key)) {
            for value in &mut setting.values {
                // It may be replaced by a later flag of the same name, in a branch that is not
                // known to run.
                value.value = Value::Unknown(value.value.written().to_owned());
            }
        }
        keys
    }
}

/// Notes where quotes may be read by something else: Hydra has its own grammar, what splits a
/// variable that is used elsewhere is unknown, and a shell on the other host reads the words once
/// more.
fn doubt_quoting(command: &ShellCommand<'_>, detected: &Detected, found: &mut [Finding]) {
    if detected.launcher == Launcher::Hydra || command.is_variable || is_over_ssh(command, detected) {
        found.iter_mut().for_each(|one| _ = one.doubts.insert(Doubt::OtherQuoting));
    }
}

/// Whether `ssh` takes the words of the launch, each by itself, to another host.
fn is_over_ssh(command: &ShellCommand<'_>, detected: &Detected) -> bool {
    let words = command.words.get(..detected.first_argument).unwrap_or_default();
    words.iter().filter_map(|word| word.value.known()).any(|word| programs::base(word) == "ssh")
}

/// Whether a script of an unknown name, in front of slime's own, takes the flags.
fn is_own_front_end(command: &ShellCommand<'_>, detected: &Detected) -> bool {
    let words = command.words.get(..detected.first_argument).unwrap_or_default();
    let is_script = |word: &&str| word.ends_with(".py") || word.ends_with(".sh");
    let mut scripts = words.iter().filter_map(|word| word.value.known()).filter(is_script);
    detected.launcher == Launcher::Slime && scripts.next_back().is_some_and(|script| !is_train_script(script))
}

fn is_train_script(script: &str) -> bool {
    matches!(programs::base(script), "train.py" | "train_async.py")
}

/// The words that start the engine.
fn program(command: &ShellCommand<'_>, first_argument: usize) -> Vec<Located<Value>> {
    let words = command.words.iter().take(first_argument);
    words.map(|word| Located::new(word.value.to_value(), word.span)).collect()
}

/// The settings of the flags that spectune knows. Of a flag that is given several times the last
/// one counts.
pub(super) fn settings(source: &Source, arguments: &[Argument], syntax: Syntax) -> BTreeMap<Key, Setting> {
    let last: BTreeMap<Key, &Argument> =
        arguments.iter().filter_map(|argument| Some((argument.key?, argument))).collect();
    last.into_iter().map(|(key, argument)| (key, setting(source, argument, syntax))).collect()
}

pub(super) fn setting(source: &Source, argument: &Argument, syntax: Syntax) -> Setting {
    Setting {
        values: argument.values.clone(),
        flag: argument.flag.span,
        span: argument.span,
        value: argument.values.iter().map(|value| value.span).reduce(Span::join),
        spelling: argument.flag.value.clone(),
        removal: place::removal(source, argument.span, syntax),
        writing: Writing::shell(None),
    }
}
