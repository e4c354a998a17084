//! Texts inside texts: one loop reads the whole text and all that is in it, each by the reader of
//! its kind, and a second one maps what was found back, from the innermost texts outwards.

use schemas::{
    finding::{Doubt, Finding},
    text::{Source, Span},
};

use super::{
    Launch, Options, Parsed, Syntax, arguments,
    compose::Composed,
    context::TextContext,
    dockerfile,
    document::{Document, ReadDocument},
    kind::{TextKind, is_makefile, is_script_name},
    launch_file, listings, makefile, markdown, patch, problems, python,
    template::{self, RenderedTemplate},
    unit, yaml,
};

/// Maximum nesting of texts that is parsed.
const DEEPEST: usize = 3;

/// A text on the work list.
struct WorkItem {
    source: Source,
    kind: TextKind,
    options: Options,
    context: TextContext,
    depth: usize,
    /// The index of the enclosing text, and what this text is in it.
    outer: Option<(usize, Document)>,
    read: ReadDocument,
    /// The blocks of a template that may be missing.
    blocks: Vec<Span>,
    /// Where a template may write more than is visible.
    unseen: Vec<Span>,
    /// What was found in the texts in it, last ones first.
    found: Vec<Parsed>,
    /// Config files in it: their names, and the anchors of their launches.
    config_files: Vec<(String, Span)>,
}

/// Reads a text and the texts in it. Of a template, the launches in other branches than the first
/// ones are further launches.
pub(super) fn parse(source: &Source, kind: TextKind, context: TextContext, options: &Options) -> Parsed {
    let item = |source: &Source| WorkItem::new(source.clone(), kind, context.clone(), options.clone());
    let mut parsed = parse_item(item(source));
    if !may_be_template(source, kind) {
        return parsed;
    }
    for RenderedTemplate { source, blocks, others, unseen } in template::other_branches(source, kind == TextKind::Yaml)
    {
        let other = parse_item(WorkItem { blocks, unseen, ..item(&source) });
        let is_in = |launch: &Launch| others.iter().any(|block| overlap(launch.span, *block));
        let launches: Vec<Launch> = other.launches.into_iter().filter(is_in).collect();
        let is_own = |found: &Finding| launches.iter().any(|launch| overlap(launch.span, found.span));
        parsed.findings.extend(other.findings.into_iter().filter(is_own));
        if parsed.launches.is_empty() && !launches.is_empty() {
            // Nothing was found in the first branches, which is no fault of the text.
            parsed.findings.retain(|found| found.code != problems::NO_LAUNCH.code);
        }
        parsed.launches.extend(launches);
    }
    parsed.launches.sort_by_key(|launch| launch.anchor);
    parsed
}

/// Whether the statements of a template are looked for in a text.
fn may_be_template(source: &Source, kind: TextKind) -> bool {
    let may_be = matches!(kind, TextKind::Yaml | TextKind::Script | TextKind::Dockerfile | TextKind::Unit);
    may_be && !is_makefile(source.name())
}

fn overlap(one: Span, other: Span) -> bool {
    one.start < other.end.max(other.start + 1) && other.start < one.end.max(one.start + 1)
}

fn parse_item(item: WorkItem) -> Parsed {
    let mut texts = vec![item];
    let mut at = 0;
    // A list in place of recursion: texts within texts cannot exhaust the stack.
    while let Some(text) = texts.get_mut(at) {
        text.read();
        let documents = std::mem::take(&mut text.read.documents);
        if text.depth < DEEPEST {
            let (options, depth) = (text.options.clone(), text.depth + 1);
            texts.extend(documents.into_iter().map(|document| WorkItem::inside(document, at, &options, depth)));
        }
        at += 1;
    }
    // From the innermost ones outwards, since each is finished only when those within it are.
    while let Some(text) = texts.pop() {
        let (outer, parsed) = text.finish();
        let Some((outer, document)) = outer else { return parsed };
        if let Some(outer) = texts.get_mut(outer).filter(|_| !parsed.launches.is_empty()) {
            outer.take_back(&document, parsed);
        }
    }
    Parsed::default()
}

impl WorkItem {
    fn new(source: Source, kind: TextKind, context: TextContext, options: Options) -> Self {
        let (read, blocks, unseen, found, config_files) = Default::default();
        Self { source, kind, options, context, depth: 0, outer: None, read, blocks, unseen, found, config_files }
    }

    fn inside(document: Document, outer: usize, options: &Options, depth: usize) -> Self {
        let version = document.version.filter(|stated| options.engine.is_none_or(|engine| stated.is_of(engine)));
        let version = options.version.or(version.map(|stated| stated.version.value));
        let variables = options.variables.as_ref().map(|outer| document.surroundings.variables(outer));
        let options = Options { engine: options.engine.or(document.engine), version, variables };
        let text = Self::new(document.source(), document.kind, document.context.clone(), options);
        Self { depth, outer: Some((outer, document)), ..text }
    }

    fn read(&mut self) {
        if let Some(after) = patch::after(&self.source) {
            self.source = after;
        }
        if !self.read_template() {
            return;
        }
        if let Some(words) = words_of_process(&self.source, &self.context) {
            self.read.documents.push(words);
            return;
        }
        let (source, context, options) = (&self.source, &self.context, &self.options);
        self.read = match self.kind {
            TextKind::Toml => launch_file::read(source, context, options),
            TextKind::Yaml => yaml::read(source, context, options),
            TextKind::Script if self.outer.is_none() && is_makefile(source.name()) => makefile::read(source, context),
            TextKind::Script if self.outer.is_none() => yaml::read_unnamed(source, context, options)
                .unwrap_or_else(|| listed(source, context, arguments::read(source, context, options))),
            TextKind::Script => arguments::read(source, context, options),
            TextKind::Markdown => markdown::read(source, context),
            TextKind::Python => python::read(source, context),
            TextKind::Dockerfile => dockerfile::read(source, context),
            TextKind::Unit => unit::read(source, context, options),
            TextKind::Unread(format) => {
                ReadDocument { reason: Some(problems::unread(source, format)), ..ReadDocument::default() }
            }
        };
    }

    /// Reads the first branches of a template, and unknown values in place of its expressions;
    /// false if it is unknown which of its lines are rendered.
    fn read_template(&mut self) -> bool {
        let is_yaml = self.kind == TextKind::Yaml;
        if may_be_template(&self.source, self.kind)
            && let Some(rendered) = template::first_branches(&self.source, is_yaml)
        {
            (self.source, self.blocks, self.unseen) = (rendered.source, rendered.blocks, rendered.unseen);
        }
        // A template of YAML may itself be valid YAML: its reader tries that first.
        if is_yaml || !TextKind::is_template(self.source.name()) {
            return true;
        }
        match template::filled(&self.source) {
            Some(filled) => self.source = filled,
            None => return !template::opens(self.source.text()),
        }
        true
    }

    /// Marks the launches of which a template may leave a part out, or to which it may add.
    fn doubt_blocks(&self, launches: &mut [Launch], findings: &mut [Finding]) {
        for launch in launches {
            let span = launch.span;
            let is_within = |block: &Span| span.start < block.start && block.start < span.end;
            if !self.blocks.iter().any(is_within) {
                continue;
            }
            // With these branches it is all that is given.
            launch.is_part |= self.unseen.iter().any(|place| is_within(place) || self.follows(span, place));
            launch.is_templated = true;
            let own =
                findings.iter_mut().filter(|found| span.start <= found.span.start && found.span.start <= span.end);
            own.for_each(|found| _ = found.doubts.insert(Doubt::Template));
        }
    }

    /// Whether a place is the next one after a launch in which anything is written.
    fn follows(&self, launch: Span, place: &Span) -> bool {
        let after = self.source.text().get(launch.end..).unwrap_or_default();
        let next = after.trim_start_matches(|letter: char| letter.is_whitespace() || "\\\"'".contains(letter));
        (launch.end..=launch.end + after.len() - next.len()).contains(&place.start)
    }

    /// Adds what was found in a text of this one.
    fn take_back(&mut self, document: &Document, mut parsed: Parsed) {
        // The text was put together from parts of the file, so an edit has no single place.
        if document.is_composed {
            parsed.launches.iter_mut().for_each(|launch| launch.syntax = Syntax::Composed);
            parsed.findings.iter_mut().for_each(|found| found.fix = None);
        }
        parsed.launches.iter_mut().for_each(|launch| launch.is_part |= document.is_part);
        let mut parsed = document.origin.back(&self.source, document, parsed);
        parsed.findings.extend_from_slice(&document.findings);
        if let (Some(name), [config]) = (&document.file_name, parsed.launches.as_slice())
            && config.syntax == Syntax::YamlConfig
        {
            self.config_files.push((name.clone(), config.anchor));
        }
        self.found.push(parsed);
    }

    /// All that was found in the text and in the texts in it, and what the text is in the enclosing
    /// one.
    fn finish(mut self) -> (Option<(usize, Document)>, Parsed) {
        let ReadDocument { mut launches, mut findings, troubles, reason, .. } = std::mem::take(&mut self.read);
        for inner in std::mem::take(&mut self.found).into_iter().rev() {
            launches.extend(inner.launches);
            findings.extend(inner.findings);
        }
        yaml::join_configs(&mut launches, &self.config_files);
        launches.sort_by_key(|launch| launch.anchor);
        self.doubt_blocks(&mut launches, &mut findings);
        if launches.is_empty() {
            // Where nothing runs the text, what does not close is prose.
            let troubles = troubles.into_iter().filter(|found| !found.depends.lines && self.context.is_run());
            findings.extend(troubles);
            findings.push(reason.unwrap_or_else(|| problems::no_launch(&self.source)));
        } else {
            findings.extend(troubles.into_iter().filter_map(|found| in_launch(found, &launches)));
        }
        (self.outer, Parsed { launches, findings })
    }
}

/// The words of a running process, as Linux shows them: each ends in a zero byte.
fn words_of_process(source: &Source, context: &TextContext) -> Option<Document> {
    let text = source.text();
    let words = text.trim_end_matches('\n').strip_suffix('\0')?;
    let program = words.split_once('\0')?.0;
    if words.contains('\n') || program.is_empty() || program.contains(char::is_whitespace) {
        return None;
    }
    let mut command = Composed::default();
    let mut at = 0;
    for word in words.split('\0') {
        command.word(word, Span::new(at, at + word.len()));
        at += word.len() + 1;
    }
    Some(Document { is_composed: true, ..command.into_document(TextKind::Script, context.clone()) })
}

/// Adds what a text that is no script lists.
fn listed(source: &Source, context: &TextContext, mut read: ReadDocument) -> ReadDocument {
    if !is_script_name(source.name()) {
        read.documents.extend(listings::lists(source, context));
    }
    read
}

/// A finding about a construct in the text of a launch, with the doubts of that launch; `None` if
/// it is in no launch.
fn in_launch(mut found: Finding, launches: &[Launch]) -> Option<Finding> {
    let at = found.span.start;
    let launch = launches.iter().find(|launch| launch.span.start <= at && at <= launch.span.end)?;
    found.doubts.extend(launch.doubts());
    Some(found)
}
