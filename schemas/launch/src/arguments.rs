//! From command lines to launches: which engine, which words are its arguments, and what each flag
//! takes.

mod bounds;
mod build;
pub(super) mod flag_names;
mod join;
mod joined;
pub(super) mod json_values;
mod model_word;
mod numbers;
mod place;
pub(super) mod split;
pub(super) mod unknown;

use std::collections::BTreeMap;

use schemas::{
    finding::Finding,
    flags::Key,
    text::{Located, Source, Span},
};

use self::{
    build::{LaunchBuilder, setting, settings},
    flag_names::FlagNames,
    join::{broken, join_continued},
};
use super::{
    Argument, Engine, Insertion, Launch, Launcher, Options, Syntax,
    command::{CommandText, Field, ShellCommand},
    context::{TextContext, TextForm},
    detect::{self, MOST_WORDS},
    document::{ReadDocument, UNKNOWN},
    problems,
    programs::{self, ProgramRole},
    quoting::quoted,
    script,
    script_words::{kept, script_place},
    writing::Writing,
};

/// Reads a text as a shell does.
pub(super) fn read(source: &Source, context: &TextContext, options: &Options) -> ReadDocument {
    let mut script = script::read(source, options.variables.as_deref());
    // Words that an enclosing script fills in are unknown, quoted or not.
    if source.text().contains(UNKNOWN) {
        script.commands.iter_mut().for_each(ShellCommand::leave_open);
    }
    let mut findings = Vec::new();
    let mut launches = Vec::new();
    let mut others = Vec::new();
    for command in join_continued(source, context, script.commands) {
        findings.extend(kept_by_shell(&command));
        let Some(detected) = detect::detect(&command, options.engine) else {
            others.push(command);
            continue;
        };
        // A page mentions single flags, and what a sentence speaks of looks like flags of an
        // unknown program.
        let is_mention = detected.is_bare && context.is_page() && !detect::is_list_of_flags(&command.words);
        let is_prose = !context.is_run() && context.form != TextForm::OtherFile;
        if is_mention || (detected.launcher == Launcher::Wrapper && is_prose) {
            continue;
        }
        let mut found = Vec::from_iter(command.broken_at.map(broken));
        let launch = LaunchBuilder { source, context, options }.launch(&command, &detected, &mut found);
        // Outside of scripts a list of flags may be the output of `--help`, in which each value is
        // the flag's own name.
        let is_quoted =
            matches!(context.form, TextForm::OtherFile | TextForm::PythonCall | TextForm::PythonText | TextForm::Test);
        if is_quoted && is_of_help(&launch.arguments) {
            continue;
        }
        if command.broken_at.is_none() && is_command(context) && lacks_model(&launch, &command, &detected) {
            found.push(problems::without_model(launch.anchor));
        }
        found.iter_mut().for_each(|found| found.doubts.extend(launch.doubts()));
        findings.append(&mut found);
        launches.push(launch);
    }
    let mut of_slime: Vec<&mut Launch> = launches.iter_mut().filter(|launch| launch.engine == Engine::Slime).collect();
    if !of_slime.is_empty() {
        let companions = companions(source, others.iter(), options);
        // slime's scripts keep flags in arrays, some of which are passed on in ways that are not
        // followed.
        of_slime.iter_mut().for_each(|launch| accompany(source, launch, &companions));
    }
    context.mark(&mut launches, &mut findings);
    // Here-documents and quoted scripts are in the same context.
    script.documents.iter_mut().for_each(|document| document.context = context.clone());
    let troubles = script.troubles.into_iter().map(problems::trouble_finding).collect();
    ReadDocument { launches, findings, troubles, documents: script.documents, reason: None }
}

/// A flag after the script of `bash -c`, which starts an engine and does not use its parameters.
fn kept_by_shell(command: &ShellCommand<'_>) -> Option<Finding> {
    let is_known = |word: &Field<'_>, test: &dyn Fn(&str) -> bool| word.value.known().is_some_and(test);
    // What `ssh` gets is read once more by the other shell, as one line.
    if command.words.iter().any(|word| is_known(word, &|word| programs::base(word) == "ssh")) {
        return None;
    }
    let is_shell = |word: &Field<'_>| is_known(word, &|word| programs::has(word, ProgramRole::Shell));
    let shell = command.words.iter().position(is_shell)?;
    let words = command.words.get(shell + 1..)?;
    let at = script_place(words.iter().map(|word| word.value.known()))?;
    let script = words.get(at)?.value.known().filter(|script| detect::names_engine(script))?;
    let parameters = words.get(at + 1..)?.iter().filter_map(|word| Some((word.value.known()?, word.span)));
    kept(script, parameters.filter(|(word, _)| flag_names::is_flag(word)))
}

/// Whether nothing outside of a text adds to its commands.
fn is_command(context: &TextContext) -> bool {
    matches!(context.form, TextForm::Input | TextForm::Script | TextForm::Unit | TextForm::Supervisor)
}

/// Whether a server of SGLang certainly starts without the model that its parser requires.
fn lacks_model(launch: &Launch, command: &ShellCommand<'_>, detected: &detect::Detected) -> bool {
    let is_server = launch.engine == Engine::Sglang && launch.launcher == Launcher::Own && launch.callee.is_none();
    let is_whole = detected.is_sure && !detected.is_bare && !command.is_variable && launch.is_complete();
    let key = Key::ModelPath;
    let is_given = launch.has(key) || launch.perhaps.contains(&key);
    // `sglang serve MODEL` takes a word for it, and the value of an abbreviation is one.
    let may_be_given = |argument: &Argument| {
        let name = argument.flag.value.trim_start_matches('-');
        argument.is_positional() || argument.key.is_none() && "model-path".starts_with(name)
    };
    is_server
        && is_whole
        && launch.syntax == Syntax::CommandLine
        && !launch.arguments.is_empty()
        && !is_given
        && !launch.arguments.iter().any(may_be_given)
}

/// Whether flags are those that `--help` lists: each has its own name in capitals for a value.
fn is_of_help(arguments: &[Argument]) -> bool {
    arguments.iter().any(|argument| {
        let own = argument.flag.value.trim_start_matches('-').replace(['-', '.'], "_").to_ascii_uppercase();
        own.contains('_') && argument.values.first().is_some_and(|value| value.value.written() == own)
    })
}

/// What the rest of a slime script says of every launch in it; the last word counts.
fn companions<'a>(
    source: &Source,
    lines: impl Iterator<Item = &'a ShellCommand<'a>>,
    options: &Options,
) -> Vec<Argument> {
    let mut found: BTreeMap<Key, Argument> = BTreeMap::new();
    for line in lines {
        let words = line.words.get(..MOST_WORDS).unwrap_or(&line.words);
        let arguments =
            split::split(source, words, FlagNames::for_engine(Engine::Slime, options.version), &mut Vec::new());
        for argument in arguments {
            if let Some(key) = argument.key.filter(|key| key.flag().of_slime || *key == Key::ModelPath) {
                found.insert(key, argument);
            }
        }
    }
    found.into_values().collect()
}

fn accompany(source: &Source, launch: &mut Launch, companions: &[Argument]) {
    for argument in companions {
        // The launch's own flags win: the others are only near it.
        let Some(key) = argument.key.filter(|key| !launch.has(*key)) else { continue };
        launch.settings.insert(key, setting(source, argument, launch.syntax));
        launch.arguments.push(argument.clone());
    }
}

pub(super) fn from_words(words: &[String]) -> (Source, Launch) {
    let mut text = String::new();
    let mut fields: Vec<Field<'_>> = Vec::with_capacity(words.len());
    for word in words {
        if !text.is_empty() {
            text.push(' ');
        }
        let start = text.len();
        text.push_str(&quoted(word));
        fields.push(Located::new(CommandText::Known(word.into()), Span::new(start, text.len())));
    }
    let source = Source::new("<command line>", text);
    // clap has already checked these words.
    let arguments = split::split(&source, &fields, FlagNames::for_engine(Engine::Spectune, None), &mut Vec::new());
    let span = Span::new(0, source.text().len());
    let insertion = Insertion { at: span.end, before: " ".into(), after: String::new(), writing: Writing::shell(None) };
    let anchor = fields.first().map_or(span, |field| field.span);
    let launch = Launch {
        span,
        settings: settings(&source, &arguments, Syntax::CommandLine),
        arguments,
        ..Launch::empty(Engine::Spectune, Syntax::CommandLine, anchor, insertion)
    };
    (source, launch)
}
