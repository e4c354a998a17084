//! Maps launches of an excerpt back to its YAML: spans, and how edits are written there.

use std::{rc::Rc, sync::Arc};

use schemas::{
    diagnostic::Edit,
    finding::Finding,
    flags::{Arity, Key},
    text::{Located, Source, Span},
};

use super::{
    excerpt::{Excerpt, ExcerptWord},
    node::{Tree, YamlNode},
};
use crate::{
    Argument, Environment, Insertion, Launch, Parsed, Setting, Syntax,
    document::{Document, TextOrigin},
    writing::{Quotes, Writing, WritingForm},
};

/// Where the text of a document is in the YAML.
#[derive(Debug)]
pub(super) struct YamlOrigin {
    pub tree: Rc<Tree>,
    pub excerpt: Excerpt,
}

impl TextOrigin for YamlOrigin {
    fn place(&self, span: Span) -> Span {
        self.excerpt.place(span)
    }

    fn back(&self, outer: &Source, document: &Document, parsed: Parsed) -> Parsed {
        let mapping = YamlMapping { yaml: outer.text(), tree: &self.tree, excerpt: &self.excerpt };
        // What a variable holds is part of the launch of the command, where there is one.
        let of_command = |launch: &Launch| launch.anchor.start >= self.excerpt.command;
        let has_command = parsed.launches.iter().any(of_command);
        let launches = parsed.launches.into_iter().filter(|launch| !has_command || of_command(launch));
        let mut launches: Vec<Launch> = launches.map(|launch| mapping.launch(launch)).collect();
        for launch in &mut launches {
            // A container sets its variables, unless the script sets them anew.
            for (name, variable) in document.surroundings.environment.iter() {
                let own = launch.environment.get(name).and_then(|own| own.value.known());
                if own.is_none_or(|own| Some(own) == variable.value.known()) {
                    Arc::make_mut(&mut launch.environment).insert(name.clone(), variable.clone());
                }
            }
            document.surround(launch);
        }
        Parsed { launches, findings: parsed.findings.into_iter().map(|found| mapping.finding(found)).collect() }
    }
}

/// An excerpt and where it comes from.
struct YamlMapping<'a> {
    yaml: &'a str,
    tree: &'a Tree,
    excerpt: &'a Excerpt,
}

impl YamlMapping<'_> {
    pub fn finding(&self, mut finding: Finding) -> Finding {
        if let Some(fix) = &mut finding.fix {
            fix.edits.iter_mut().for_each(|edit| *edit = self.edit(edit));
        }
        finding.related.iter_mut().for_each(|related| related.span = self.place(related.span));
        finding.span = self.place(finding.span);
        finding
    }

    fn edit(&self, edit: &Edit) -> Edit {
        let quotes = self.excerpt.quotes(edit.span.start);
        let replacement = quotes.map_or(edit.replacement.clone(), |quotes| quotes.enclose(&edit.replacement));
        Edit { span: self.place(edit.span), replacement }
    }

    pub fn launch(&self, launch: Launch) -> Launch {
        let insertion = self.insertion(&launch);
        let settings = launch.settings.into_iter().map(|(key, setting)| (key, self.setting(key, setting))).collect();
        let in_list = matches!(insertion.writing.form, WritingForm::Items { .. });
        let arguments: Vec<Argument> = launch.arguments.into_iter().map(|argument| self.argument(argument)).collect();
        let anchor = self.place(launch.anchor);
        let environment = launch.environment.iter();
        Launch {
            syntax: if in_list { Syntax::YamlWords } else { launch.syntax },
            span: arguments.iter().map(|argument| argument.span).fold(anchor, Span::join),
            anchor,
            program: launch.program.into_iter().map(|word| Located::new(word.value, self.place(word.span))).collect(),
            settings,
            arguments,
            environment: environment
                .map(|(name, value)| (name.clone(), Located::new(value.value.clone(), self.place(value.span))))
                .collect::<Environment>()
                .into(),
            engine_version: launch.engine_version.map(|version| Located::new(version.value, self.place(version.span))),
            insertion,
            ..launch
        }
    }

    /// The place of a part of the excerpt, without the quotes of items.
    fn place(&self, span: Span) -> Span {
        self.excerpt.place(span)
    }

    fn items(&self, span: Span) -> Option<&[ExcerptWord]> {
        let (first, last) = self.excerpt.items_of(span)?;
        self.excerpt.items.get(first..=last)
    }

    /// The place of words, with the quotes of items.
    fn whole(&self, span: Span) -> Span {
        let items = self.items(span).unwrap_or_default();
        items.iter().map(|item| item.outer).reduce(Span::join).unwrap_or_else(|| self.place(span))
    }

    fn argument(&self, mut argument: Argument) -> Argument {
        argument.span = self.whole(argument.span);
        argument.flag.span = self.place(argument.flag.span);
        argument.values.iter_mut().for_each(|value| value.span = self.place(value.span));
        argument
    }

    fn setting(&self, key: Key, mut setting: Setting) -> Setting {
        let written = setting.value.unwrap_or(setting.span);
        match self.items(setting.span).and_then(|items| Some((items, items.last()?))) {
            Some((items, last)) => {
                let tied = setting.value.is_some_and(|value| self.tied(setting.flag, value));
                (setting.value, setting.writing) = match (setting.value, self.items(written)) {
                    (Some(value), Some([item])) if tied || (item.quotes != Quotes::Plain && !takes_several(key)) => {
                        (Some(self.place(value)), inside(item.quotes))
                    }
                    (value, _) => (value.map(|value| self.whole(value)), self.items_writing(last, false)),
                };
                setting.removal = self.removal(items);
            }
            None => {
                // The words of a variable may follow those of the command: an edit of both would
                // cover the text between them.
                let first = || setting.values.first().map_or(setting.span, |value| value.span);
                let whole = |value: Span| if self.excerpt.is_of_one_scalar(value) { value } else { first() };
                setting.value = setting.value.map(|value| self.place(whole(value)));
                setting.writing = Writing::shell(self.excerpt.quotes(written.start));
                setting.removal = self.lines(setting.removal, setting.span);
            }
        }
        setting.span = self.whole(setting.span);
        setting.flag = self.place(setting.flag);
        setting.values.iter_mut().for_each(|value| value.span = self.place(value.span));
        setting
    }

    /// Whether flag and value are parts of one item.
    fn tied(&self, flag: Span, value: Span) -> bool {
        let item = |span: Span| self.excerpt.items_of(span);
        item(flag).is_some() && item(flag) == item(value)
    }

    /// The place of the text that a removal deletes; whole lines of a block are deleted with their
    /// indentation. Only the argument is deleted if the removal would reach into another scalar.
    fn lines(&self, removal: Span, argument: Span) -> Span {
        let place = self.place(removal);
        if !self.excerpt.is_of_one_scalar(removal) {
            let argument_place = self.place(argument);
            let end = if self.excerpt.is_of_one_scalar(argument) { argument_place.end } else { argument_place.start };
            return Span::new(argument_place.start, end);
        }
        let text = &self.excerpt.text;
        let whole = text.get(..removal.start).is_some_and(|before| before.is_empty() || before.ends_with('\n'))
            && text.get(removal.range()).is_some_and(|removed| removed.ends_with('\n'));
        if whole && self.excerpt.quotes(removal.start) == Some(Quotes::Block) {
            return Span::new(line_start(self.yaml, place.start), place.end);
        }
        place
    }

    fn is_flow(&self, item: &ExcerptWord) -> bool {
        matches!(self.tree.node(item.list), Some(YamlNode::List(list)) if list.flow)
    }

    /// The text to delete with items: their lines, or in brackets a comma. Empty if more than the
    /// items would be deleted.
    fn removal(&self, items: &[ExcerptWord]) -> Span {
        let (Some(first), Some(last)) = (items.first(), items.last()) else { return Span::default() };
        let words = Span::new(first.outer.start, last.outer.end.max(first.outer.start));
        if !self.is_flow(first) {
            let start = line_start(self.yaml, words.start);
            let before = self.yaml.get(start..words.start).unwrap_or_default().trim();
            if before != "-" || items.iter().any(|item| item.alias) {
                return Span::new(words.start, words.start);
            }
            return Span::new(start, (line_end(self.yaml, words.end) + 1).min(self.yaml.len()));
        }
        let in_list = |item: &&ExcerptWord| item.list == first.list;
        let next = self.excerpt.items.iter().filter(in_list).find(|item| item.text.start > last.text.start);
        let before = self.excerpt.items.iter().filter(in_list).rfind(|item| item.text.start < first.text.start);
        match (next, before) {
            (Some(next), _) => Span::new(words.start, next.outer.start),
            (None, Some(before)) => Span::new(before.outer.end, words.end),
            (None, None) => words,
        }
    }

    /// The text before a new item of the same list.
    fn separator(&self, item: &ExcerptWord) -> String {
        if self.is_flow(item) {
            return ", ".into();
        }
        let start = line_start(self.yaml, item.outer.start);
        let before = self.yaml.get(start..item.outer.start).unwrap_or_default();
        let dash = before.rfind('-').unwrap_or(0);
        format!("\n{}- ", " ".repeat(before.get(..dash).map_or(0, |indentation| indentation.chars().count())))
    }

    fn items_writing(&self, item: &ExcerptWord, tied: bool) -> Writing {
        Writing { form: WritingForm::Items { tied }, between: self.separator(item) }
    }

    fn insertion(&self, launch: &Launch) -> Insertion {
        let last = launch.arguments.iter().max_by_key(|argument| argument.span.end);
        let span = last.map_or(launch.anchor, |argument| argument.span);
        let items = self.items(span).unwrap_or_default();
        let Some(item) = items.iter().rfind(|item| !item.alias) else { return self.shell_insertion(launch) };
        let with_value =
            launch.arguments.iter().rev().find(|argument| !argument.is_positional() && argument.values.len() == 1);
        let tied = with_value
            .is_some_and(|argument| argument.values.iter().all(|value| self.tied(argument.flag.span, value.span)));
        let writing = self.items_writing(item, tied);
        let flow = self.is_flow(item);
        let at = if flow { item.outer.end } else { line_end(self.yaml, item.outer.end) };
        Insertion { at, before: writing.between.clone(), after: String::new(), writing }
    }

    /// Inserts after the last flag, with the same blanks before it.
    fn shell_insertion(&self, launch: &Launch) -> Insertion {
        let Insertion { at, before, after, .. } = &launch.insertion;
        let last = launch.arguments.iter().filter(|argument| argument.span.end <= *at);
        let last = last.max_by_key(|argument| argument.span.end).map(|argument| argument.span.start);
        let like_last = last.and_then(|start| {
            let blanks = Span::new(start.checked_sub(before.len())?, start);
            let is_like = self.excerpt.text.get(blanks.range()) == Some(before.as_str());
            is_like.then(|| self.yaml.get(self.place(blanks).range()).unwrap_or_default().to_owned())
        });
        let writing = Writing::shell(self.excerpt.quotes(at.saturating_sub(1)));
        let before = like_last.filter(|blanks| !blanks.is_empty()).unwrap_or_else(|| " ".into());
        Insertion { at: self.place(Span::new(at.saturating_sub(1), *at)).end, before, after: after.clone(), writing }
    }
}

fn inside(quotes: Quotes) -> Writing {
    Writing { form: WritingForm::Inside(quotes), between: " ".into() }
}

fn takes_several(key: Key) -> bool {
    key.flag().arity() == Arity::Several
}

pub(super) fn line_start(text: &str, at: usize) -> usize {
    text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |newline| newline + 1)
}

pub(super) fn line_end(text: &str, at: usize) -> usize {
    text.get(at..).and_then(|after| after.find('\n')).map_or(text.len(), |newline| at + newline)
}
