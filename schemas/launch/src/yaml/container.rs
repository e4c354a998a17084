//! Containers: mappings with `command` and `args` (Kubernetes), or `entrypoint` and `command`
//! (compose).

use saphyr_parser::ScalarStyle;
use schemas::{
    engines::Engine,
    finding::Finding,
    text::{Span, is_variable_name},
};

use super::{
    align::{Aligned, Scalar},
    excerpt::{Excerpt, ExcerptWord},
    no_shell,
    node::{Id, Map, Tree, YamlNode},
    variables::{ContainerVariables, ReferenceChunk, YamlVariable, chunks},
};
use crate::{
    detect::{names_engine, starts_engine},
    entry_point::{self, Runner},
    evidence::{StatedVersion, version_in_image},
    images::engine_of_image,
    programs::{self, ProgramRole},
    quoting::{is_plain, quoted},
    script_words::{kept, takes_script},
};

/// The keys whose words make up a command, in order.
const COMMAND: [&str; 3] = ["entrypoint", "command", "args"];

/// A command with its environment.
pub(super) struct YamlContainer<'a> {
    pub excerpt: Excerpt,
    pub variables: ContainerVariables<'a>,
    /// The version of the engine in the image's tag.
    pub version: Option<StatedVersion>,
    /// The image that it runs, if known.
    pub image: Option<&'a str>,
    /// Whether the words are only a part of a command.
    pub is_part: bool,
    /// The scalars that hold the command.
    pub scalars: Vec<Id>,
    /// What the image, or what splits the command, does not take.
    pub problems: Vec<Finding>,
}

/// A scalar of a command.
struct ContainerWord<'a> {
    id: Id,
    scalar: &'a Scalar,
    aligned: Aligned,
    /// The list that contains it; `None` for a scalar that is a line of several words.
    list: Option<Id>,
    /// Whether the list contains it as an alias.
    alias: bool,
}

impl<'a> YamlContainer<'a> {
    /// Reads a mapping that may be a container that starts an engine. `runner` says whether a
    /// command given as a single string is split into words without a shell.
    pub fn from_map(yaml: &str, tree: &'a Tree, map: &'a Map, runner: Runner) -> Option<Self> {
        let words = words(yaml, tree, COMMAND.iter().filter_map(|key| tree.get(map, key)))?;
        let parts = tree.get(map, "image").and_then(|id| tree.map(id));
        let image = match parts {
            // Values of a chart give the parts of its name by themselves.
            Some(parts) => tree.get(parts, "repository").and_then(|id| tree.scalar(id)),
            None => tree.get(map, "image").and_then(|id| tree.scalar(id)),
        };
        let tag = parts.and_then(|parts| tree.scalar(tree.get(parts, "tag")?));
        let version = image.and_then(|image| match tag {
            Some(tag) => version_in_image(&format!("{}:{}", image.text, tag.text), tag.span),
            None => version_in_image(&image.text, image.span),
        });
        let of_image = image.and_then(|image| Some((engine_of_image(&image.text)?, image, tree.align(yaml, image)?)));
        // An entry point without arguments has nothing to check, and no place for another flag.
        let has_arguments = words.iter().any(|word| word.scalar.text != "serve");
        let of_image = of_image.filter(|_| has_arguments && is_entry_points(&words));
        let is_entry_point = of_image.is_some();
        let evident = words.iter().any(|word| names_engine(&word.scalar.text));
        let variables = ContainerVariables::from_container(yaml, tree, map);
        let stated = variables.list.iter().any(|variable| variable.value.value.known().is_some_and(names_engine));
        if !evident && !stated && of_image.is_none() {
            return None;
        }
        let scalars = words.iter().map(|word| word.id).collect();
        // If there is only `args`, a launcher passes the flags on and adds others.
        let own_command = ["image", "entrypoint", "command"].iter().any(|key| tree.get(map, key).is_some());
        let is_part = !own_command && words.first().is_some_and(|word| word.scalar.text.starts_with("--"));
        let mut excerpt = Excerpt::default();
        if let Some((engine, image, aligned)) = of_image {
            // The image's entry point precedes its arguments.
            let serves = words.iter().flat_map(ContainerWord::split).next() == Some("serve");
            let program = match (engine, serves) {
                (Engine::Vllm, true) => "vllm",
                (Engine::Vllm, false) => "vllm serve",
                (_, true) => "sglang",
                (_, false) => "python3 -m sglang.launch_server",
            };
            excerpt.put(program, image.span, &aligned);
        }
        let excerpt = Writer { tree, variables: &variables, excerpt, is_joined: is_part }.write_all(&words, runner);
        let mut problems = unread_syntax(&words, runner, is_entry_point);
        problems.extend(kept_by_shell(&words));
        let first = image.zip(words.first()).filter(|_| !replaces_entry_point(tree, map, runner));
        problems.extend(first.and_then(|(image, first)| entry_point_of(&image.text, first, runner)));
        let is_part = is_part && !words.iter().any(speculates);
        let image = image.map(|image| default_of(&image.text)).filter(|image| !image.contains(['$', '{', ' ']));
        Some(Self { excerpt, variables, version, image, is_part, scalars, problems })
    }

    /// A list that belongs to no container, if its words start an engine: a command that a program
    /// wrote down.
    pub fn from_list(yaml: &str, tree: &'a Tree, list: Id) -> Option<Self> {
        let texts: Vec<&str> =
            tree.items(list).iter().map_while(|item| Some(tree.scalar(*item)?.text.as_str())).collect();
        if texts.len() < tree.items(list).len() || !starts_engine(&texts) {
            return None;
        }
        let words = words(yaml, tree, [list].into_iter())?;
        let variables = ContainerVariables::default();
        let excerpt = Excerpt::default();
        let excerpt =
            Writer { tree, variables: &variables, excerpt, is_joined: false }.write_all(&words, Runner::Other);
        let scalars = words.iter().map(|word| word.id).collect();
        let problems = Vec::new();
        Some(Self { excerpt, variables, version: None, image: None, is_part: false, scalars, problems })
    }

    /// The lists of flags under other keys of a mapping, such as `extraArgs` in the values of a
    /// chart.
    pub fn lists_of(yaml: &str, tree: &'a Tree, map: &'a Map) -> Vec<Self> {
        let is_flag = |id: &Id| {
            let text = tree.scalar(*id).map_or("", |scalar| &scalar.text);
            ["--speculative-", "--speculative_config", "--model-path"].iter().any(|own| text.starts_with(own))
        };
        let is_command = |key: Id| tree.scalar(key).is_some_and(|key| COMMAND.contains(&key.text.as_str()));
        // A list of names, as of those that are looked for, has no values between them.
        let has_value =
            |id: &Id| tree.scalar(*id).is_some_and(|word| !word.text.starts_with("--") || word.text.contains('='));
        let holds_flags = |list: Id| {
            let items = tree.items(list);
            items.iter().any(is_flag) && (items.len() < 3 || items.iter().any(has_value))
        };
        let lists = map.entries.iter().filter(|(key, list)| !is_command(*key) && holds_flags(*list));
        lists
            .filter_map(|(_, list)| {
                let words = words(yaml, tree, [*list].into_iter())?;
                let variables = ContainerVariables::default();
                let excerpt = Excerpt::default();
                let excerpt =
                    Writer { tree, variables: &variables, excerpt, is_joined: true }.write_all(&words, Runner::Other);
                let scalars = words.iter().map(|word| word.id).collect();
                // All flags about speculation are in one list; a chart adds the model path and
                // similar flags.
                let is_part = !words.iter().any(speculates);
                let problems = Vec::new();
                Some(Self { excerpt, variables, version: None, image: None, is_part, scalars, problems })
            })
            .collect()
    }
}

fn words<'a>(yaml: &str, tree: &'a Tree, ids: impl Iterator<Item = Id>) -> Option<Vec<ContainerWord<'a>>> {
    let mut words = Vec::new();
    for id in ids {
        let mut add = |word: Id, list: Option<Id>, alias: bool| {
            let scalar = tree.scalar(word)?;
            let aligned = tree.align(yaml, scalar)?;
            words.push(ContainerWord { id: word, scalar, aligned, list, alias });
            Some(())
        };
        match tree.node(id)? {
            YamlNode::List(list) => {
                // Nodes are numbered in text order, so only an alias refers back.
                let mut last = id;
                for item in &list.items {
                    add(*item, Some(id), *item <= last)?;
                    last = last.max(*item);
                }
            }
            YamlNode::Scalar(_) => add(id, None, false)?,
            YamlNode::Map(_) => {}
        }
    }
    (!words.is_empty()).then_some(words)
}

/// Whether a word is a flag about speculation.
fn speculates(word: &ContainerWord<'_>) -> bool {
    let text = word.scalar.text.replace('_', "-");
    text.starts_with("--speculative-algo") || text.starts_with("--speculative-config")
}

/// The value of a text if its variable is not set: `${IMAGE:-name:tag}`.
fn default_of(text: &str) -> &str {
    let inside = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    inside.and_then(|inside| inside.split_once('-')).map_or(text, |(_, default)| default)
}

/// Whether words are arguments of an image's entry point, not a separate command.
fn is_entry_points(words: &[ContainerWord<'_>]) -> bool {
    let texts: Vec<&str> = words.iter().map(|word| word.scalar.text.as_str()).collect();
    let mut split = words.iter().flat_map(ContainerWord::split);
    let (first, second) = (split.next().unwrap_or_default(), split.next().unwrap_or_default());
    let is_model = second.starts_with("--") && first.split('/').count() == 2 && !first.starts_with(['/', '.', '-']);
    (first.starts_with("--") || first == "serve" || is_model) && !starts_engine(&texts)
}

/// Whether a container replaces the entry point of its image, or gives it no arguments.
fn replaces_entry_point(tree: &Tree, map: &Map, runner: Runner) -> bool {
    let has = |key: &str| tree.get(map, key).is_some();
    has("entrypoint") || (if runner == Runner::Compose { !has("command") } else { has("command") || !has("args") })
}

/// Reports the first word of a container if the entry point of its image does not take it.
fn entry_point_of(image: &str, first: &ContainerWord<'_>, runner: Runner) -> Option<Finding> {
    let word = first.split().next()?;
    let start = first.scalar.text.find(word)?;
    let span = place(first, Span::new(start, start + word.len()));
    entry_point::check(default_of(image), word, span, runner)
}

/// Reports what is written for a shell in the arguments of an engine that no shell splits.
fn unread_syntax(words: &[ContainerWord<'_>], runner: Runner, is_entry_point: bool) -> Vec<Finding> {
    let texts: Vec<&str> = words.iter().flat_map(ContainerWord::split).collect();
    if runner == Runner::Other || script(words).is_some() || !(is_entry_point || starts_engine(&texts)) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for word in words {
        match word.list {
            Some(_) => found.extend(no_shell::check_item(&word.scalar.text, word.aligned.outer)),
            None if runner == Runner::Compose => {
                let syntax = no_shell::in_line(&word.scalar.text).into_iter();
                found.extend(syntax.map(|(syntax, span)| syntax.at(place(word, span))));
            }
            None => {}
        }
    }
    found
}

/// Reports flags after the script of `sh -c`: they are parameters of the script, which it does not
/// use.
fn kept_by_shell(words: &[ContainerWord<'_>]) -> Option<Finding> {
    let script = script(words)?;
    let at = words.iter().position(|word| word.id == script.id)?;
    let parameters = words.get(at + 1..)?.iter().map(|word| (word.item(), word.aligned.outer));
    kept(&script.scalar.text, parameters)
}

/// The word after `sh -c`.
fn script<'w, 'a>(words: &'w [ContainerWord<'a>]) -> Option<&'w ContainerWord<'a>> {
    let is_shell = |word: &ContainerWord<'_>| programs::has(word.item(), ProgramRole::Shell);
    let shell = words.iter().position(is_shell).unwrap_or(0);
    let option = words.iter().skip(shell).position(|word| takes_script(word.item()))? + shell;
    // If no shell is named, the image's entry point may be one.
    let runs = option == 0 || words.get(shell).is_some_and(is_shell);
    words.get(option + 1).filter(|_| runs)
}

impl ContainerWord<'_> {
    /// The words in it: one of a list is never split.
    fn split(&self) -> impl Iterator<Item = &str> {
        let (item, line) = match self.list {
            Some(_) => (Some(self.scalar.text.as_str()), ""),
            None => (None, self.scalar.text.as_str()),
        };
        item.into_iter().chain(line.split_whitespace())
    }

    /// The text of a list item.
    fn item(&self) -> &str {
        self.list.map_or("", |_| &self.scalar.text)
    }
}

/// A separate text that does not belong to a container, such as a script in a ConfigMap.
pub(super) fn lone_script(yaml: &str, tree: &Tree, scalar: &Scalar) -> Option<Excerpt> {
    if !names_engine(&scalar.text) {
        return None;
    }
    let aligned = tree.align(yaml, scalar)?;
    let mut excerpt = Excerpt::default();
    excerpt.copy(scalar, &aligned, Span::new(0, scalar.text.len()));
    Some(excerpt)
}

/// Writes the commands of containers for the shell reader.
struct Writer<'a> {
    tree: &'a Tree,
    variables: &'a ContainerVariables<'a>,
    excerpt: Excerpt,
    /// Whether a launcher joins the words of a list with blanks, so that one of them may be a flag
    /// with its value.
    is_joined: bool,
}

impl<'a> Writer<'a> {
    /// Appends words.
    fn write_all(mut self, words: &[ContainerWord<'_>], runner: Runner) -> Excerpt {
        let writer = &mut self;
        match script(words) {
            Some(word) => writer.script(word),
            None => words.iter().for_each(|word| match word.list {
                Some(list) => writer.word(word, list),
                None => writer.line(word, runner),
            }),
        }
        self.excerpt
    }

    /// Writes a script after the variables that it runs with.
    fn script(&mut self, word: &ContainerWord<'_>) {
        // Compose fills in `${NAME}` before the script sees it; `$${NAME}` is a variable of the
        // container.
        if !self.variables.of_compose || word.scalar.text.contains("$$") {
            self.variables.list.iter().for_each(|variable| self.export(variable));
        }
        self.excerpt.begin_command();
        self.filled(word);
    }

    fn export(&mut self, variable: &YamlVariable<'_>) {
        let name = variable.name;
        let length = variable.value.value.written().len();
        if !self.tree.spend(length + 64) || !is_variable_name(name) {
            return;
        }
        self.excerpt.write(&format!("export {name}="));
        match &variable.scalar {
            Some((scalar, aligned)) => self.excerpt.quote(scalar, aligned, Span::new(0, scalar.text.len())),
            // Its value is unknown, but it has one.
            None => self.excerpt.write(&format!("\"${{{name}}}\"")),
        }
        self.excerpt.write("\n");
    }

    /// Writes the text of a scalar. References of Kubernetes, compose and templates are filled in,
    /// or turned into shell expansions.
    fn filled(&mut self, word: &ContainerWord<'_>) {
        let (scalar, aligned) = (word.scalar, &word.aligned);
        for (span, chunk) in chunks(&scalar.text) {
            let written = scalar.text.get(span.range()).unwrap_or_default();
            match chunk {
                ReferenceChunk::Reference(name) => self.reference(word, span, name),
                ReferenceChunk::Template if written.starts_with('{') => {
                    self.excerpt.write("$");
                    self.excerpt.copy(scalar, aligned, span);
                }
                ReferenceChunk::Dollar if self.variables.of_compose && written == "$$" => {
                    self.excerpt.copy(scalar, aligned, Span::new(span.start, span.start + 1));
                }
                ReferenceChunk::Text | ReferenceChunk::Dollar | ReferenceChunk::Template => {
                    self.excerpt.copy(scalar, aligned, span)
                }
            }
        }
    }

    /// Writes a reference that Kubernetes fills in. If its value has several words, each maps to
    /// its place in the variable's own value.
    fn reference(&mut self, word: &ContainerWord<'_>, span: Span, name: &str) {
        let Some(text) = self.known(name) else {
            self.excerpt.copy(word.scalar, &word.aligned, span);
            return;
        };
        match self.variables.get(name).and_then(|variable| variable.scalar.as_ref()) {
            Some((scalar, aligned)) if text.contains(char::is_whitespace) => {
                self.excerpt.copy(scalar, aligned, Span::new(0, text.len()));
            }
            _ => self.excerpt.put(&text, place(word, span), &word.aligned),
        }
    }

    /// The value of a variable that Kubernetes fills in, if known.
    fn known(&self, name: &str) -> Option<String> {
        let text = self.variables.get(name).filter(|_| !self.variables.of_compose)?.value.value.known()?;
        self.tree.spend(text.len()).then(|| text.to_owned())
    }

    /// Writes a text of several words. Compose splits it without a shell, so a line end is a blank,
    /// as it is meant to be wherever the text is folded.
    fn line(&mut self, word: &ContainerWord<'_>, runner: Runner) {
        self.space();
        let start = self.excerpt.text.len();
        self.filled(word);
        if runner == Runner::Compose || word.scalar.style == ScalarStyle::Folded {
            self.excerpt.join_lines(start);
        }
    }

    fn space(&mut self) {
        if !self.excerpt.text.is_empty() {
            self.excerpt.write(" ");
        }
    }

    /// Writes a word of a list, quoted so that a shell reads this word.
    fn word(&mut self, word: &ContainerWord<'_>, list: Id) {
        self.space();
        let start = self.excerpt.text.len();
        let (scalar, aligned) = (word.scalar, &word.aligned);
        let is_pair = self.is_joined && scalar.text.starts_with("--") && !scalar.text.contains(['"', '\'', '{', '$']);
        match self.parts(word) {
            Some(_) if is_pair && scalar.text.contains(' ') => self.filled(word),
            Some(parts) => {
                for (span, text) in parts {
                    match text {
                        Some(text) => self.excerpt.put(&quoted(&text), place(word, span), aligned),
                        None => self.excerpt.quote(scalar, aligned, span),
                    }
                }
            }
            None => self.unknown(word),
        }
        let text = Span::new(start, self.excerpt.text.len());
        self.excerpt.items.push(ExcerptWord {
            text,
            outer: aligned.outer,
            quotes: aligned.quotes,
            list,
            alias: word.alias,
        });
    }

    /// The parts of a word, with the text of those that Kubernetes fills in; `None` if one of these
    /// is unknown.
    fn parts(&self, word: &ContainerWord<'_>) -> Option<Vec<(Span, Option<String>)>> {
        let whole = || vec![(Span::default(), ReferenceChunk::Text)];
        let chunks = Some(chunks(&word.scalar.text)).filter(|chunks| !chunks.is_empty()).unwrap_or_else(whole);
        let part = |(span, chunk)| match chunk {
            ReferenceChunk::Text => Some((span, None)),
            ReferenceChunk::Reference(name) => Some((span, Some(self.known(name)?))),
            ReferenceChunk::Dollar | ReferenceChunk::Template => None,
        };
        chunks.into_iter().map(part).collect()
    }

    /// Writes a word of unknown text; a flag before it is known.
    fn unknown(&mut self, word: &ContainerWord<'_>) {
        let (scalar, aligned) = (word.scalar, &word.aligned);
        let text = scalar.text.as_str();
        let mut from = 0;
        if let Some((flag, _)) = text.split_once('=').filter(|(flag, _)| flag.starts_with("--") && is_plain(flag)) {
            from = flag.len() + 1;
            self.excerpt.copy(scalar, aligned, Span::new(0, flag.len()));
            self.excerpt.write(" ");
        }
        let rest = Span::new(from, text.len());
        let written = text.get(from..).unwrap_or_default();
        let one_word = chunks(written).iter().all(|(span, chunk)| {
            let part = written.get(span.range()).unwrap_or_default();
            match chunk {
                ReferenceChunk::Text => is_plain(part),
                ReferenceChunk::Dollar => part != "$$" && !part.contains([' ', '\t', '\n', '\'', '"', '\\', '`']),
                ReferenceChunk::Reference(_) => true,
                ReferenceChunk::Template => false,
            }
        });
        if one_word {
            self.excerpt.copy(scalar, aligned, rest);
        } else {
            self.excerpt.put("$(…)", place(word, rest), aligned);
        }
    }
}

fn place(word: &ContainerWord<'_>, span: Span) -> Span {
    let mut part = Excerpt::default();
    part.copy(word.scalar, &word.aligned, span);
    part.place(Span::new(0, part.text.len()))
}
