//! Assignments of variables and arrays, and whether a command uses what they hold.

use super::{
    super::shell::{Array, Assignment, Hopeless, Opener, Reader, Statement, Word},
    Interpreter, Scalar, Used, anything,
    line::{ArrayPlace, Field, Text},
    ways::Elements,
};
use crate::text::{Located, Span};

impl<'a> Interpreter<'a> {
    pub(super) fn assign(&mut self, assignment: &Assignment<'a>) -> Field<'a> {
        let mut used = Used::default();
        let value = self.text(&assignment.value.parts, assignment.value.span, &mut used);
        let fields = self.fields_of(&assignment.value);
        self.assigned(assignment.name);
        self.order += 1;
        match self.scalars.get_mut(assignment.name).filter(|_| assignment.append) {
            Some(old) => {
                match (&mut old.value, &value) {
                    (Text::Known(old), Text::Known(new)) if old.len() + new.len() <= self.source.text().len() => {
                        old.to_mut().push_str(new);
                    }
                    (old, _) => *old = anything(assignment.name),
                }
                old.fields.extend(fields);
            }
            None => {
                let gone = self.gone.clone();
                let scalar = Scalar { value: value.clone(), fields, gone, used: false, order: self.order };
                self.scalars.insert(assignment.name.into(), scalar);
            }
        }
        Located::new(value, assignment.value.span)
    }

    pub(super) fn assign_array(&mut self, array: Array<'a>) {
        let mut used = Used::default();
        let fields = self.expand_all(&array.words, &mut used);
        let known = self.current.get(array.name).copied();
        let place = ArrayPlace { name: array.name_span, span: array.span };
        let old = known.and_then(|at| self.arrays.get_mut(at));
        let mut elements = match old {
            Some(old) if array.append => {
                old.append(fields, &used.conditional, &self.gone);
                self.mark(&used);
                return;
            }
            Some(old) if !self.gone.is_empty() => {
                if old.replace(fields.clone(), &used.conditional, &self.gone) {
                    old.places.push(place);
                    self.mark(&used);
                    return;
                }
                Elements::default()
            }
            Some(old) => old.take_appended_by_functions(),
            None => Elements::default(),
        };
        self.order += 1;
        elements.begin(fields, &used.conditional, &self.gone, array.append);
        elements.places = vec![place];
        elements.order = self.order;
        self.current.insert(array.name, self.arrays.len());
        self.arrays.push(elements);
        // Words that went from one array into another are looked at there.
        self.mark(&used);
    }

    pub(super) fn mark(&mut self, used: &Used<'_>) {
        for at in &used.arrays {
            if let Some(elements) = self.arrays.get_mut(*at) {
                elements.used = true;
            }
        }
        for name in &used.scalars {
            if let Some(scalar) = self.scalars.get_mut(*name) {
                scalar.used = true;
            }
        }
    }

    /// The words of a part of the text, each at its own place.
    pub(super) fn words_of(&mut self, inside: Span) -> Vec<Field<'a>> {
        let mut fields = Vec::new();
        for statement in Reader::new(self.source.text(), inside) {
            if let Statement::Command(command) = statement {
                fields.extend(self.expand_all(&command.words, &mut Used::default()));
            }
        }
        fields
    }

    /// The words of an assignment whose value is one quoted text, each at its own place.
    fn fields_of(&mut self, value: &Word<'a>) -> Vec<Field<'a>> {
        match self.quoted_inside(value.span) {
            Some(inside) => self.words_of(inside),
            None => self.expand_all(std::slice::from_ref(value), &mut Used::default()),
        }
    }

    /// The inside of a word that is one quoted text and nothing else.
    fn quoted_inside(&self, span: Span) -> Option<Span> {
        let inside = Span::new(span.start + 1, span.end.saturating_sub(1));
        let text = self.source.slice(span).as_bytes();
        let closes = match text.first()? {
            b'"' => Hopeless::default().end_of(Opener::Double, text, 1)? == text.len(),
            b'\'' => Hopeless::default().end_of_single(text, 1)? + 1 == text.len(),
            _ => false,
        };
        closes.then_some(inside)
    }
}
