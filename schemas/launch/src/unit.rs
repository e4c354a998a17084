//! Units of systemd, and podman's units in the same format: the commands of `ExecStart=`; and those
//! of supervisord's programs.

mod supervisor;

use std::sync::Arc;

use schemas::text::{Located, Source, Span};

use super::{
    Options, Value, Variables,
    compose::Composed,
    context::TextContext,
    document::{Document, ReadDocument, Surroundings},
    evidence::version_in_image,
    images::engine_of_image,
    kind::{TextKind, has_programs_of_supervisord},
    quoting::quoted,
};

/// Maximum number of variables per unit.
const MOST_VARIABLES: usize = 128;

/// A key with its value, including continued lines.
struct UnitEntry<'a> {
    /// The name of its section.
    section: &'a str,
    key: &'a str,
    value: &'a str,
    place: Span,
}

/// Finds the commands that a unit starts.
pub(super) fn read(source: &Source, context: &TextContext, options: &Options) -> ReadDocument {
    let is_of_supervisord = has_programs_of_supervisord(source);
    let source = &if is_of_supervisord { supervisor::joined(source) } else { without_comments(source) };
    let entries = entries(source);
    let specifiers = Specifiers::from_source(source, options.variables.as_deref());
    let image = entries.iter().find(|entry| entry.key == "Image");
    let mut of_unit = surroundings(&entries, &specifiers);
    of_unit.image = image.map(|image| image.value.to_owned());
    let command = |entry: &UnitEntry<'_>| {
        let surroundings = match is_of_supervisord {
            true => supervisor::surroundings(&entries, entry.section),
            false => of_unit.clone(),
        };
        // `Exec=` contains flags only: its leading dash is not a prefix of systemd.
        let is_flags = entry.key == "Exec";
        let prefixes: &[char] = if is_flags { &[] } else { &['-', '@', '+', '!', ':', '|'] };
        let command = entry.value.trim_start_matches(prefixes);
        let mut composed = Composed::default();
        // Supervisord fills no variables in.
        for (name, value) in surroundings.environment.iter().filter(|_| !is_of_supervisord) {
            let Some(text) = value.value.known() else { continue };
            let is_split = splits(command, name);
            // In braces a value is not split, and a file may set the variable once more.
            let is_filled = command.contains(&format!("${{{name}}}")) || (is_split && !text.contains(' '));
            let is_certain = !text.contains([' ', '\t']) && !text.is_empty() && !surroundings.is_open;
            if (is_split && text.contains(' ')) || (is_filled && is_certain) {
                composed.write(&format!("{name}="));
                copy_quoted(text, value.span, &mut composed);
                composed.write("\n");
            }
        }
        specifiers.compose(command, Span::new(entry.place.end - command.len(), entry.place.end), &mut composed);
        Document {
            surroundings,
            version: image.and_then(|image| version_in_image(image.value, image.place)),
            engine: image.and_then(|image| engine_of_image(image.value)).filter(|_| command.starts_with("--")),
            ..composed.into_document(TextKind::Script, context.clone())
        }
    };
    let starts = entries.iter().filter(|entry| match entry.key {
        "ExecStart" | "Exec" | "ExecStartPre" => !is_of_supervisord,
        key => is_of_supervisord && key == "command",
    });
    ReadDocument { documents: starts.map(command).collect(), ..ReadDocument::default() }
}

/// Whether a command has the words of a variable: `$NAME` as a word, which systemd splits.
fn splits(command: &str, name: &str) -> bool {
    command.split_whitespace().any(|word| word.strip_prefix('$') == Some(name))
}

/// A unit in which comments between continued lines are continued lines themselves: systemd skips
/// them (systemd.syntax). Each byte has its place.
fn without_comments(source: &Source) -> Source {
    let mut text = String::with_capacity(source.text().len());
    let mut goes_on = false;
    for line in source.text().split_inclusive('\n') {
        let bare = line.trim_end_matches(['\r', '\n']);
        if goes_on && bare.trim_start().starts_with(['#', ';']) {
            text.push_str(&" ".repeat(bare.len() - 1));
            text.push('\\');
            text.push_str(line.get(bare.len()..).unwrap_or_default());
        } else {
            goes_on = bare.trim_end().ends_with('\\');
            text.push_str(line);
        }
    }
    Source::new(source.name(), text)
}

fn entries(source: &Source) -> Vec<UnitEntry<'_>> {
    let text = source.text();
    let mut entries = Vec::new();
    let mut section = "";
    let mut lines = text.split_inclusive('\n').peekable();
    let mut at = 0;
    while let Some(line) = lines.next() {
        let start = at;
        at += line.len();
        let (mut end, mut last) = (start + line.trim_end().len(), line);
        while last.trim_end().ends_with('\\') {
            let Some(next) = lines.next() else { break };
            at += next.len();
            end = at - (next.len() - next.trim_end().len());
            last = next;
        }
        let whole = text.get(start..end).unwrap_or_default();
        if let Some(name) = whole.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name;
        }
        let Some((key, value)) = whole.split_once('=') else { continue };
        if key.trim_start().starts_with(['#', ';', '[']) {
            continue;
        }
        let value = value.trim_start();
        entries.push(UnitEntry { section, key: key.trim(), value, place: Span::new(end - value.len(), end) });
    }
    entries
}

/// The words of a value, which may be quoted as a whole or in part (systemd.syntax, "Quoting").
fn unquoted_words(value: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for character in value.chars() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (None, '"' | '\'') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, _) if character.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

/// Where a variable's value is in an entry: the whole entry if it has quotes within, or occurs
/// twice.
fn place_in(entry: &UnitEntry<'_>, value: &str) -> Span {
    match entry.value.match_indices(value).collect::<Vec<_>>()[..] {
        [(at, _)] if !value.is_empty() => Span::new(entry.place.start + at, entry.place.start + at + value.len()),
        _ => entry.place,
    }
}

/// Adds a variable's value as one word of a shell. Only a value that stands in the source as it is
/// has places for its parts.
fn copy_quoted(text: &str, place: Span, composed: &mut Composed) {
    if text.contains('\'') || place.end - place.start != text.len() {
        return composed.put_for(&quoted(text), place);
    }
    composed.write("'");
    composed.copy(text, place);
    composed.write("'");
}

/// Adds a part of a command that starts at an offset of the source. Two dollars are one for the
/// program that is started, such as a shell.
fn copy_with_dollars(part: &str, start: usize, composed: &mut Composed) {
    let mut from = 0;
    for (at, dollars) in part.match_indices("$$") {
        composed.copy(part.get(from..at).unwrap_or_default(), Span::new(start + from, start + at));
        from = at + dollars.len();
        composed.put_for("$", Span::new(start + at, start + from));
    }
    composed.copy(part.get(from..).unwrap_or_default(), Span::new(start + from, start + part.len()));
}

fn surroundings(entries: &[UnitEntry<'_>], specifiers: &Specifiers<'_>) -> Surroundings {
    let mut surroundings = Surroundings::default();
    for entry in entries {
        match entry.key {
            "EnvironmentFile" | "PassEnvironment" => surroundings.is_open = true,
            "Environment" => {
                let environment = Arc::make_mut(&mut surroundings.environment);
                let pairs = unquoted_words(entry.value);
                let room = MOST_VARIABLES.saturating_sub(environment.len());
                for (name, value) in pairs.iter().filter_map(|pair| pair.split_once('=')).take(room) {
                    let place = place_in(entry, value);
                    environment.insert(name.to_owned(), Located::new(specifiers.value(value), place));
                }
            }
            _ => {}
        }
    }
    surroundings
}

/// The folder in which a unit's commands run; `None` if it names none.
pub fn working_directory(source: &Source, variables: Option<&Variables>) -> Option<Value> {
    if TextKind::detect(source) != TextKind::Unit {
        return None;
    }
    let source = &without_comments(source);
    let entries = entries(source);
    let value = entries.iter().rfind(|entry| entry.key == "WorkingDirectory")?.value.trim_start_matches('-');
    let value = if value == "~" { "%h" } else { value };
    (!value.is_empty()).then(|| Specifiers::from_source(source, variables).value(value))
}

/// What podman gets for the container of a unit; `None` if the unit has none.
pub(super) fn container(source: &Source, variables: Option<&Variables>) -> Option<UnitContainer> {
    const OPTIONS: [(&str, &str); 14] = [
        ("AddDevice", "--device"),
        ("AddCapability", "--cap-add"),
        ("AddHost", "--add-host"),
        ("EnvironmentFile", "--env-file"),
        ("GroupAdd", "--group-add"),
        ("Memory", "--memory"),
        ("Mount", "--mount"),
        ("ShmSize", "--shm-size"),
        ("Tmpfs", "--tmpfs"),
        ("Ulimit", "--ulimit"),
        ("User", "--user"),
        ("UserNS", "--userns"),
        ("Volume", "--volume"),
        ("WorkingDir", "--workdir"),
    ];
    const OTHERS: [&str; 3] = ["Pod", "Secret", "Rootfs"];
    if TextKind::detect(source) != TextKind::Unit {
        return None;
    }
    let source = &without_comments(source);
    let (entries, specifiers) = (entries(source), Specifiers::from_source(source, variables));
    let image = specifiers.value(entries.iter().rfind(|entry| entry.key == "Image")?.value);
    let mut found = UnitContainer { image, options: Vec::new(), left_out: Vec::new() };
    for entry in &entries {
        let option = OPTIONS.iter().find(|(key, _)| *key == entry.key).map(|(_, option)| *option);
        let of_another_unit = entry.key == "Volume" && entry.value.split(':').next().is_some_and(is_unit_of_podman);
        match (entry.key, option) {
            _ if of_another_unit || OTHERS.contains(&entry.key) => {
                found.left_out.push(format!("{}={}", entry.key, entry.value));
            }
            (_, Some(option)) => {
                found.options.extend([Value::Known(option.to_owned()), specifiers.value(entry.value)]);
            }
            ("PodmanArgs", None) => {
                found.options.extend(unquoted_words(entry.value).iter().map(|word| specifiers.value(word)));
            }
            ("SecurityLabelDisable", None) if entry.value == "true" => {
                found.options.extend(["--security-opt", "label=disable"].map(|word| Value::Known(word.to_owned())));
            }
            _ => {}
        }
    }
    Some(found)
}

/// Whether a volume is made by another unit.
fn is_unit_of_podman(name: &str) -> bool {
    name.ends_with(".volume")
}

/// How the container of a unit is run.
pub(super) struct UnitContainer {
    pub image: Value,
    /// Options of `podman run`, without name, network and environment.
    pub options: Vec<Value>,
    /// What has no counterpart.
    pub left_out: Vec<String>,
}

/// What the specifiers of a unit mean (systemd.unit, "Specifiers").
struct Specifiers<'a> {
    /// The unit's file name.
    name: &'a str,
    home: Option<&'a str>,
}

impl<'a> Specifiers<'a> {
    fn from_source(source: &'a Source, variables: Option<&'a Variables>) -> Self {
        let name = source.name().rsplit('/').next().unwrap_or_default();
        let variable = |name: &str| variables.and_then(|all| all.fixed.get(name).or(all.environment.get(name)));
        Self { name, home: variable("HOME").map(String::as_str) }
    }

    /// What a specifier stands for: a text, or a variable of a shell. `None` if it is not one that
    /// is known.
    fn meaning(&self, letter: char) -> Option<&'a str> {
        let whole = self.name.rsplit_once('.').map_or(self.name, |(whole, _)| whole);
        let (prefix, instance) = whole.split_once('@').unwrap_or((whole, ""));
        Some(match letter {
            '%' => "%",
            'n' => self.name,
            'N' => whole,
            'p' | 'P' => prefix,
            'j' | 'J' => prefix.rsplit('-').next().unwrap_or_default(),
            // A unit with an `@` gets its instance when it is started.
            'i' | 'I' if instance.is_empty() => "$instance",
            'i' | 'I' => instance,
            'h' => self.home.unwrap_or("$HOME"),
            'u' | 'U' => "$USER",
            'H' | 'l' => "$HOSTNAME",
            't' => "$XDG_RUNTIME_DIR",
            'T' => "/tmp",
            'V' => "/var/tmp",
            _ => return None,
        })
    }

    /// The parts of a text: each with its place, and whether it stands for a specifier.
    fn parts<'t>(&self, text: &'t str) -> Vec<(&'t str, Span, bool)>
    where
        'a: 't,
    {
        let (mut parts, mut from, mut at) = (Vec::new(), 0, 0);
        while let Some(next) = text.get(at..).and_then(|rest| rest.find('%')) {
            let start = at + next;
            let letter = text.get(start + 1..).and_then(|rest| rest.chars().next());
            let Some((letter, meaning)) = letter.and_then(|letter| Some((letter, self.meaning(letter)?))) else {
                at = start + 1;
                continue;
            };
            let end = start + 1 + letter.len_utf8();
            parts.extend(text.get(from..start).map(|part| (part, Span::new(from, start), false)));
            parts.push((meaning, Span::new(start, end), true));
            (from, at) = (end, end);
        }
        parts.extend(text.get(from..).map(|part| (part, Span::new(from, text.len()), false)));
        parts
    }

    /// Adds a command, which is at a place of the source.
    fn compose(&self, command: &str, place: Span, composed: &mut Composed) {
        for (part, at, is_specifier) in self.parts(command) {
            let at = Span::new(place.start + at.start, place.start + at.end);
            match is_specifier {
                true => composed.put_for(part, at),
                false => copy_with_dollars(part, at.start, composed),
            }
        }
    }

    /// A value that no shell reads.
    fn value(&self, text: &str) -> Value {
        let specifiers = Specifiers { name: self.name, home: self.home };
        let parts = specifiers.parts(text);
        let is_open = parts.iter().any(|(part, _, is_specifier)| *is_specifier && part.starts_with('$'));
        let text = parts.iter().map(|(part, ..)| *part).collect::<String>();
        if is_open { Value::Unknown(text) } else { Value::Known(text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Launch, parse, yaml::container_of};

    fn launch_of(name: &str, text: &str, home: Option<&str>) -> (Source, Launch) {
        let source = Source::new(name, text);
        let environment = home.map(|home| ("HOME".to_owned(), home.to_owned())).into_iter().collect();
        let variables = home.map(|_| Arc::new(Variables { environment, ..Variables::default() }));
        let parsed = parse(&source, &Options { variables, ..Options::default() });
        let launch = parsed.launches.into_iter().next().expect("a launch");
        (source, launch)
    }

    #[test]
    fn specifiers_are_filled_in_as_far_as_they_are_known() {
        let text = "[Service]\nWorkingDirectory=%h/run\nEnvironment=CACHE=%h/cache\n\
                    ExecStart=/usr/bin/python3 -m sglang.launch_server --model-path %h/m --port %i --served-model-name %p-100%%\n";
        let words = |name: &str, home: Option<&str>| {
            let (_, launch) = launch_of(name, text, home);
            let words =
                launch.arguments.iter().flat_map(|one| &one.values).map(|value| value.value.written().to_owned());
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words("sglang@8001.service", Some("/home/me")), "/home/me/m 8001 sglang-100%");
        assert_eq!(words("sglang@.service", None), "%h/m %i sglang-100%");
        let (source, launch) = launch_of("sglang@.service", text, Some("/home/me"));
        assert_eq!(launch.variable("CACHE").map(|value| value.value), Some("/home/me/cache"));
        let given =
            Variables { environment: [("HOME".to_owned(), "/home/me".to_owned())].into(), ..Variables::default() };
        assert_eq!(working_directory(&source, Some(&given)), Some(Value::Known("/home/me/run".into())));
        assert!(working_directory(&source, None).is_some_and(|folder| folder.known().is_none()));
    }

    #[test]
    fn a_container_of_podman_is_run_with_the_options_of_its_unit() {
        let text = "[Container]\nImage=docker.io/lmsysorg/sglang:v0.5.9\nAddDevice=nvidia.com/gpu=all\n\
                    Volume=%h/models:/models:ro\nVolume=cache.volume:/cache\nShmSize=32g\nPodmanArgs=--ipc=host --memory 64g\n\
                    Exec=python3 -m sglang.launch_server --model-path /models/m\n";
        let (source, launch) = launch_of("sglang.container", text, Some("/home/me"));
        let given =
            Variables { environment: [("HOME".to_owned(), "/home/me".to_owned())].into(), ..Variables::default() };
        let run = container_of(&source, &launch, Some(&given)).expect("a container");
        let words: Vec<&str> = run.options.iter().map(Value::written).collect();
        assert_eq!(
            words.join(" "),
            "--device nvidia.com/gpu=all --volume /home/me/models:/models:ro --shm-size 32g --ipc=host --memory 64g"
        );
        assert_eq!((run.runtime, run.left_out), ("podman", vec!["Volume=cache.volume:/cache".to_owned()]));
        assert_eq!(run.image.as_ref().and_then(Value::known), Some("docker.io/lmsysorg/sglang:v0.5.9"));
        let (source, launch) = launch_of("a.service", "[Service]\nExecStart=sglang serve --model-path m\n", None);
        assert_eq!(container_of(&source, &launch, None), None);
    }

    #[test]
    fn each_variable_of_a_unit_may_be_quoted_as_a_whole_or_in_part() {
        let words = unquoted_words("\"API_KEY=a b\" FOO=\"c d\" 'X=1' BAR=e");
        assert_eq!(words, ["API_KEY=a b", "FOO=c d", "X=1", "BAR=e"]);
        assert_eq!(unquoted_words("MODEL=x \"T=y\""), ["MODEL=x", "T=y"]);
        assert_eq!(unquoted_words("\"A=\"").len(), 1);
    }
}
