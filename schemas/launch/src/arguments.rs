//! From command lines to launches: which engine, which words are its arguments, and what each flag takes.

mod annotations;
mod joined;
mod place;
pub(super) mod split;
pub(super) mod unknown;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use schemas::{
    finding::{Doubt, Finding},
    flags::{Key, Takes},
    text::{Located, Source, Span},
    version::EngineVersion,
};

use super::{
    Argument, Engine, Insertion, Launch, Launcher, Options, Parsed, Setting, Syntax, Value,
    detect::{self, Detected, MOST_WORDS},
    documents,
    entry_point::{self, Runner},
    evidence,
    forks::Forks,
    kind::is_page_name,
    placeholder::stands_for_number,
    problems,
    quoting::quoted,
    script::{self, Field, Line, Text},
    vllm,
    writing::Writing,
};

/// Reads a text as a shell does. `depth` is the number of enclosing here-documents.
pub(super) fn parse(source: &Source, options: &Options, depth: usize) -> Parsed {
    let mut script = script::read(source, options.variables.as_deref());
    if depth > 0 {
        script.lines.iter_mut().for_each(Line::leave_open);
    }
    let mut findings = Vec::new();
    let mut launches = Vec::new();
    let (candidates, others): (Vec<_>, Vec<_>) = join_bare(source, script.lines)
        .into_iter()
        .map(|line| (detect::detect(&line, options.engine), line))
        .partition(|(detected, _)| detected.is_some());
    for (detected, line) in candidates {
        let Some(detected) = detected else { continue };
        if detected.is_bare && is_page(source) && !detect::is_list_of_flags(&line.words) {
            continue;
        }
        findings.extend(line.broken_at.map(broken));
        launches.push(build(source, &line, &detected, options, &mut findings));
    }
    let mut of_slime: Vec<&mut Launch> = launches.iter_mut().filter(|launch| launch.engine == Engine::Slime).collect();
    if !of_slime.is_empty() {
        let companions = companions(source, others.iter().map(|(_, line)| line), options);
        of_slime.iter_mut().for_each(|launch| accompany(source, launch, &companions));
    }
    if depth < documents::DEEPEST {
        for document in &script.documents {
            let found = documents::read(document, source, options, depth);
            launches.extend(found.launches);
            findings.extend(found.findings);
        }
    }
    launches.sort_by_key(|launch| launch.anchor);
    // What does not close far from any launch is prose, unless it is why no launch was found.
    let is_prose = is_prose(source);
    let matters = |found: &Finding| {
        let at = found.span.start;
        // A backtick of Markdown is not a substitution.
        if is_prose && (launches.is_empty() || source.slice(found.span) == "`") {
            return false;
        }
        if launches.is_empty() {
            // A line of an unrelated command that ends too early is not reported.
            return found.code != problems::BROKEN_LINE.code;
        }
        if is_prose && annotations::is_annotation(source.slice(found.span)) {
            return false;
        }
        launches.iter().any(|launch| launch.span.start <= at && at <= launch.span.end)
    };
    findings.extend(script.troubles.into_iter().map(problems::of_trouble).filter(matters));
    if launches.is_empty() {
        findings.push(no_launch(source));
    }
    Parsed { launches, findings }
}

/// Whether a text is Markdown or its like.
fn is_page(source: &Source) -> bool {
    is_page_name(source.name()) || source.text().contains("```")
}

/// Whether a text is a page, or a collection of commands.
fn is_for_readers(source: &Source) -> bool {
    is_page(source) || source.name().ends_with(".txt")
}

/// Whether a text is written for readers, with commands in it.
fn is_prose(source: &Source) -> bool {
    is_for_readers(source) || [".yaml", ".yml"].iter().any(|ending| source.name().ends_with(ending))
}

/// That a format is not read.
pub(super) fn unread(source: &Source, format: &str) -> Parsed {
    let mut finding = no_launch(source);
    finding.message = format!("this is {format}, which is not read");
    let help = "give the command line with which it starts the engine, or a script or manifest that contains it";
    finding.help = Some(help.into());
    Parsed { launches: Vec::new(), findings: vec![finding] }
}

pub(super) fn no_launch(source: &Source) -> Finding {
    let end = source.text().find('\n').unwrap_or(source.text().len());
    let mut finding = problems::NO_LAUNCH.at(Span::new(0, end), "no launch was found in this text", "");
    finding.help = Some(
        "give a command line such as `python3 -m sglang.launch_server …`, a script with `SGLANG_ARGS=( … )`, the flags \
         alone, a launch file in TOML, or a manifest or config file in YAML"
            .into(),
    );
    finding
}

/// Lines that start with a flag and follow another line continue it: a list of bare flags, one a line, or a command
/// whose continuation is broken.
fn join_bare<'a>(source: &Source, lines: Vec<Line<'a>>) -> Vec<Line<'a>> {
    let mut joined: Vec<Line<'a>> = Vec::new();
    for line in lines {
        let follows = !line.is_variable && is_flag(line.words.first());
        let Some(before) = joined.last_mut().filter(|before| follows && !before.is_variable) else {
            joined.push(line);
            continue;
        };
        let (Some(last), Some(first)) = (before.words.last(), line.words.first()) else {
            joined.push(line);
            continue;
        };
        // One list of flags may be the other's alternative.
        let gap = Span::new(last.span.end, first.span.start);
        let is_list = is_flag(before.words.first());
        let is_behind = last.span.end <= first.span.start;
        // Flags by themselves, below an empty line of a page, are another thing to try.
        let is_other = || is_another(source.slice(gap)) && is_for_readers(source);
        if is_behind && ((is_list && is_apart(source.slice(gap), before, &line)) || (!is_list && is_other())) {
            joined.push(line);
            continue;
        }
        let between = || source.slice(gap).split('\n').map(str::trim);
        let adjacent = last.span.end <= first.span.start && between().all(ends_nothing);
        if !adjacent {
            joined.push(line);
            continue;
        }
        // One line end is representative of all.
        let is_left_out = before.words.iter().any(|word| matches!(word.value.written(), "..." | "…" | "...."));
        let is_annotated = between().any(annotations::is_annotation) && is_page(source);
        if !is_list && !is_left_out && !is_annotated && before.broken_at.is_none() {
            before.broken_at = Some(first.span);
        }
        before.words.extend(line.words);
        before.perhaps.extend(line.perhaps);
        before.branches.extend(line.branches);
        before.arrays.extend(line.arrays);
    }
    joined
}

/// Reports flags below a command that has ended.
fn broken(first: Span) -> Finding {
    let message = "the command ends here, so the flags below are not part of it";
    let mut finding = problems::BROKEN_LINE.at(first, message, "run as a separate command").by_lines();
    finding.help = Some("end the line before with a backslash, and move comments out of the command".into());
    finding
}

/// Whether two lists of flags are told apart by what stands between them: an empty line, or a comment where they have a flag in
/// common.
fn is_apart(gap: &str, before: &Line<'_>, line: &Line<'_>) -> bool {
    let between = lines_between(gap);
    between.contains(&"") || (!between.is_empty() && repeats(before, line))
}

/// Whether flags below a command are others to try: an empty line is between them, or a comment, and no backslash.
fn is_another(gap: &str) -> bool {
    let between = lines_between(gap);
    between.contains(&"") || (!gap.contains('\\') && between.iter().any(|line| line.starts_with('#')))
}

/// The whole lines in what is between two words.
fn lines_between(gap: &str) -> Vec<&str> {
    let lines: Vec<&str> = gap.split('\n').map(str::trim).collect();
    lines.get(1..lines.len().saturating_sub(1)).unwrap_or_default().to_vec()
}

/// Whether two lists of flags have one in common.
fn repeats(before: &Line<'_>, line: &Line<'_>) -> bool {
    let flags = |line: &Line<'_>| -> BTreeSet<String> {
        let known = line.words.iter().filter_map(|word| word.value.known());
        known.filter(|text| split::is_flag(text)).map(str::to_owned).collect()
    };
    !flags(before).is_disjoint(&flags(line))
}

/// Whether the rest of a line has no word: it is empty, a comment, or a line continuation.
fn ends_nothing(rest: &str) -> bool {
    matches!(rest, "" | "\\") || rest.starts_with('#')
}

/// Whether a word is written as a flag.
fn is_flag(word: Option<&Field<'_>>) -> bool {
    word.and_then(|word| word.value.known()).is_some_and(split::is_flag)
}

/// What the rest of a slime script says of every launch in it; the last word counts.
fn companions<'a>(source: &Source, lines: impl Iterator<Item = &'a Line<'a>>, options: &Options) -> Vec<Argument> {
    let mut found: BTreeMap<Key, Argument> = BTreeMap::new();
    for line in lines {
        let words = line.words.get(..MOST_WORDS).unwrap_or(&line.words);
        let arguments = split::split(source, words, Engine::Slime, options.version, &mut Vec::new());
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
        let Some(key) = argument.key.filter(|key| !launch.has(*key)) else { continue };
        launch.settings.insert(key, setting(source, argument, launch.syntax));
        launch.arguments.push(argument.clone());
    }
}

fn build(
    source: &Source,
    line: &Line<'_>,
    detected: &Detected,
    options: &Options,
    findings: &mut Vec<Finding>,
) -> Launch {
    let engine = detected.engine;
    let overrides;
    let mut words = line.words.get(detected.first_argument..).unwrap_or_default();
    if detected.launcher == Launcher::Hydra {
        overrides = detect::as_flags(|span| source.slice(span), words);
        words = &overrides;
    }
    // What follows is what GNU parallel puts into the command, or a remark of the page; a quoted word is neither.
    let ends = |word: &Field<'_>| {
        let text = word.value.known().filter(|text| *text == source.slice(word.span));
        text.is_some_and(|text| matches!(text, ":::" | "::::") || split::is_remark(text))
    };
    if let Some(end) = words.iter().position(ends) {
        words = words.get(..end).unwrap_or_default();
    }
    if let Some(first) = words.get(MOST_WORDS).filter(|_| words.len() > MOST_WORDS) {
        findings.push(problems::too_many_words(first.span, MOST_WORDS));
        words = words.get(..MOST_WORDS).unwrap_or_default();
    }
    let passed = line.passed_to.as_ref().map(|(image, first)| (image.as_str(), first));
    if let Some((image, first)) = detect::image_with_own_entry_point(&line.words).or(passed)
        && let Some(word) = first.value.known()
    {
        findings.extend(entry_point::check(image, word, first.span, Runner::Docker));
    }
    let mut troubles = Vec::new();
    let stated = line.version.filter(|stated| stated.is_of(engine)).map(|stated| stated.version);
    let version = options.version.or(stated.map(|version| version.value));
    let mut arguments = split::split(source, words, engine, version, &mut troubles);
    for argument in &mut arguments {
        argument.in_branch = line.branches.contains(&argument.flag.span);
    }
    // A page that lists flags for its readers leaves values out.
    let is_shown = detected.is_bare && is_page(source);
    for trouble in troubles.iter_mut().filter(|trouble| trouble.code == problems::MISSING_VALUE.code) {
        // What the text has there may come to something after all: a variable that is set elsewhere, a template.
        let after = source.text().get(trouble.span.end..).unwrap_or_default().trim_start_matches([' ', '\t', '=', '"']);
        if after.starts_with(['$', '{', '<']) {
            trouble.doubts.insert(Doubt::SetElsewhere);
        }
    }
    troubles.retain(|trouble| {
        let is_left_out = is_shown || (annotations::follows(source, trouble.span.end) && is_page(source));
        !is_left_out || trouble.code != problems::MISSING_VALUE.code
    });
    if engine == Engine::Vllm {
        split::positional_model(&mut arguments);
        let message =
            "vLLM launch: its flags and its speculative configuration are checked, but not combinations of other flags";
        findings.push(problems::VLLM_UNREAD.at(detected.anchor, message, "not checked"));
        // Whether a word belongs to a flag that is not read is not known.
        findings.extend(troubles.into_iter().filter(|trouble| trouble.code == problems::MISSING_VALUE.code));
        let mut wrong = vllm::bad_values(source, &arguments, false);
        // Hydra has a grammar of its own, and what splits the text of a variable that is used elsewhere is not known.
        let is_elsewhere = detected.launcher == Launcher::Hydra || line.is_variable;
        wrong.retain(|one| !is_elsewhere || one.code != problems::JSON_SYNTAX.code);
        findings.append(&mut wrong);
        bad_values(&arguments, engine, findings);
    } else if detected.is_sure && detected.launcher != Launcher::Hydra {
        findings.append(&mut troubles);
        // Benchmarks accept the server's flags and additional ones.
        if detected.launcher != Launcher::Benchmark {
            let from = findings.len();
            unknown::report(&arguments, engine, findings);
            // Dynamo's workers have flags of their own too: what is near to none of SGLang's may be one.
            let found = findings.split_off(from).into_iter();
            let found = found.filter(|found| detected.launcher != Launcher::Dynamo || !found.depends.unknown_name);
            let is_fork = line.surroundings.image.as_deref().is_some_and(|image| !evidence::is_published(image));
            findings.extend(found.map(|found| if is_fork { found.doubt(Doubt::Fork) } else { found }));
            bad_values(&arguments, engine, findings);
        }
    }
    let syntax = if detected.array.is_some() { Syntax::ShellArray } else { Syntax::CommandLine };
    let span = detected
        .array
        .unwrap_or_else(|| line.words.iter().map(|word| word.span).reduce(Span::join).unwrap_or(detected.anchor));
    let mut settings = settings(source, &arguments, syntax);
    let perhaps = perhaps(source, line, engine, version, &mut arguments, &mut settings);
    if engine == Engine::Vllm {
        settings.extend(vllm::draft_setting(&arguments));
    }
    let insertion = place::insertion(source, &arguments, syntax, engine, span);
    Launch {
        engine,
        launcher: detected.launcher,
        syntax,
        span,
        anchor: detected.anchor,
        program: program(line, detected.first_argument),
        settings,
        arguments,
        is_part: !detected.is_sure
            || line.is_part(detected.array.is_some())
            || detected.launcher == Launcher::Hydra
            // In a page for readers, flags by themselves are those that it speaks of.
            || is_shown,
        perhaps,
        environment: Arc::clone(&line.surroundings.environment),
        environment_is_open: line.surroundings.is_open,
        engine_version: stated,
        version_is_inferred: false,
        image: line.surroundings.image.clone(),
        is_changed: false,
        is_shown,
        forks: Forks::default(),
        insertion,
    }
}

/// The words that start the engine.
fn program(line: &Line<'_>, first_argument: usize) -> Vec<Located<Value>> {
    let words = line.words.iter().take(first_argument);
    words.map(|word| Located::new(word.value.to_value(), word.span)).collect()
}

/// Values that argparse cannot read: words where a number must be.
fn bad_values(arguments: &[Argument], engine: Engine, findings: &mut Vec<Finding>) {
    for argument in arguments {
        let Some(key) = argument.key else { continue };
        let (what, is_read): (_, fn(&str) -> bool) = match key.flag().takes {
            Takes::Integer | Takes::Integers => ("int", is_integer),
            Takes::Number => ("float", |text| text.trim().replace('_', "").parse::<f64>().is_ok()),
            Takes::Nothing | Takes::Text | Takes::Choice(_) | Takes::Size | Takes::Texts => continue,
        };
        let is_bad = |text: &str| !is_read(text) && !stands_for_number(&argument.flag.value, text);
        let bad = argument.values.iter().find(|value| value.value.known().is_some_and(is_bad));
        if let Some(bad) = bad {
            let shown: String = bad.value.written().chars().take(60).collect();
            let message = format!("`{}` takes a number, but got `{shown}`", argument.flag.value);
            let mut finding = problems::BAD_VALUE.at(bad.span, message, "not a number");
            let who = if engine == Engine::Vllm { "vllm" } else { "sglang" };
            finding.notes.push(format!("{who}: \"invalid {what} value: '{shown}'\""));
            findings.push(finding);
        }
    }
}

/// Whether Python's `int` takes a text.
fn is_integer(text: &str) -> bool {
    let text = text.trim();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text).as_bytes();
    let between = |pair: &[u8]| pair != b"__";
    digits.first().is_some_and(u8::is_ascii_digit)
        && digits.last().is_some_and(u8::is_ascii_digit)
        && digits.iter().all(|byte| byte.is_ascii_digit() || *byte == b'_')
        && digits.windows(2).all(between)
}

/// Flags that may also be given. For flags that are already given, the value becomes unknown.
fn perhaps(
    source: &Source,
    line: &Line<'_>,
    engine: Engine,
    version: Option<EngineVersion>,
    arguments: &mut Vec<Argument>,
    settings: &mut BTreeMap<Key, Setting>,
) -> BTreeSet<Key> {
    let words = line.perhaps.get(..MOST_WORDS).unwrap_or(&line.perhaps);
    let mut keys = BTreeSet::new();
    for argument in split::split(source, words, engine, version, &mut Vec::new()) {
        keys.extend(argument.key);
        // It may hold any flag, there as here.
        if argument.is_positional() && argument.values.iter().any(|value| value.value.known().is_none()) {
            arguments.push(argument);
        }
    }
    for (_, setting) in settings.iter_mut().filter(|(key, _)| keys.contains(key)) {
        for value in &mut setting.values {
            value.value = Value::Unknown(value.value.written().to_owned());
        }
    }
    keys
}

fn settings(source: &Source, arguments: &[Argument], syntax: Syntax) -> BTreeMap<Key, Setting> {
    // Of a flag that is given again and again only the last one counts.
    let last: BTreeMap<Key, &Argument> =
        arguments.iter().filter_map(|argument| Some((argument.key?, argument))).collect();
    last.into_iter().map(|(key, argument)| (key, setting(source, argument, syntax))).collect()
}

fn setting(source: &Source, argument: &Argument, syntax: Syntax) -> Setting {
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

pub(super) fn from_words(words: &[String]) -> (Source, Launch) {
    let mut text = String::new();
    let mut fields: Vec<Field<'_>> = Vec::with_capacity(words.len());
    for word in words {
        if !text.is_empty() {
            text.push(' ');
        }
        let start = text.len();
        text.push_str(&quoted(word));
        fields.push(Located::new(Text::Known(word.into()), Span::new(start, text.len())));
    }
    let source = Source::new("<command line>", text);
    // clap has already checked these words.
    let arguments = split::split(&source, &fields, Engine::Spectune, None, &mut Vec::new());
    let span = Span::new(0, source.text().len());
    let launch = Launch {
        engine: Engine::Spectune,
        launcher: Launcher::Own,
        syntax: Syntax::CommandLine,
        span,
        anchor: fields.first().map_or(span, |field| field.span),
        program: Vec::new(),
        settings: settings(&source, &arguments, Syntax::CommandLine),
        arguments,
        is_part: false,
        perhaps: BTreeSet::new(),
        environment: Arc::default(),
        environment_is_open: false,
        engine_version: None,
        version_is_inferred: false,
        image: None,
        is_changed: false,
        is_shown: false,
        forks: Forks::default(),
        insertion: Insertion { at: span.end, before: " ".into(), after: String::new(), writing: Writing::shell(None) },
    };
    (source, launch)
}
