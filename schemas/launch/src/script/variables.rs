//! Assignments of variables and arrays, and whether a command uses their values.

use schemas::text::{Located, Span};

use super::{
    super::{
        command::{ArrayPlace, CommandText, Field},
        placeholder::is_readers_own,
        shell::{Array, Assignment, ShellReader, ShellStatement},
    },
    Interpreter, ShellVariable, Used, anything,
    control_flow::Elements,
};

impl<'a> Interpreter<'a> {
    pub(super) fn assign(&mut self, assignment: &Assignment<'a>) -> Field<'a> {
        if let Some(given) = self.given.and_then(|given| given.fixed.get(assignment.name)) {
            let scalar = self.given_scalar(given);
            let value = scalar.value.clone();
            self.scalars.insert(assignment.name.into(), scalar);
            return Located::new(value, assignment.value.span);
        }
        let mut used = Used::default();
        let value = self.text(&assignment.value.parts, assignment.value.span, &mut used);
        if is_readers_own(value.written()) {
            // The reader replaces the value before running the script.
            return self.assign_unknown(assignment);
        }
        let split = self.plain_value(assignment.value.span);
        let split = split.unwrap_or_else(|| self.split_value(assignment.value.span, &mut used));
        let literal = Self::literal_of(&split);
        self.assigned(assignment.name);
        let before = self.scalars.get(assignment.name).and_then(|old| old.value.known()).map(str::to_owned);
        self.order += 1;
        // Words that were copied into another variable are inspected there.
        if split.fields.len() > 1 {
            self.mark(&used);
        }
        let (gone, order) = (self.gone.as_slice(), self.order);
        let fields = split.fields;
        match self.scalars.get_mut(assignment.name) {
            Some(old) if assignment.append => {
                match (&mut old.value, &value) {
                    (CommandText::Known(old), CommandText::Known(new))
                        if old.len() + new.len() <= self.source.text().len() =>
                    {
                        old.to_mut().push_str(new);
                    }
                    (old, _) => *old = anything(assignment.name),
                }
                old.literal = match (old.literal.take(), literal) {
                    (Some(mut first), Some(more)) => {
                        first.append(&more);
                        Some(first)
                    }
                    _ => None,
                };
                old.words.append(fields, &split.conditional, gone);
            }
            old => {
                // In a branch the new words replace the old ones on that path only.
                let mut old = old;
                let kept = old.as_deref_mut().filter(|_| !gone.is_empty()).map(|old| std::mem::take(&mut old.words));
                let mut words = kept.unwrap_or_default();
                if let Some(fields) = words.replace(fields, &split.conditional, gone) {
                    words = Elements::default();
                    words.begin(fields, &split.conditional, gone, false);
                }
                let scalar = ShellVariable { value: value.clone(), words, literal, used: false, order };
                match old {
                    Some(old) => *old = scalar,
                    None => {
                        self.scalars.insert(assignment.name.into(), scalar);
                    }
                }
            }
        }
        self.note_copy(assignment);
        self.note_implication(assignment.name, before.filter(|_| !assignment.append));
        Located::new(value, assignment.value.span)
    }

    fn assign_unknown(&mut self, assignment: &Assignment<'a>) -> Field<'a> {
        self.assigned(assignment.name);
        self.order += 1;
        let (value, order) = (anything(assignment.name), self.order);
        let scalar =
            ShellVariable { value: value.clone(), words: Elements::default(), literal: None, used: true, order };
        self.scalars.insert(assignment.name.into(), scalar);
        Located::new(value, assignment.value.span)
    }

    pub(super) fn assign_array(&mut self, array: Array<'a>) {
        let mut used = Used::default();
        let mut fields = self.expand_all(&array.words, &mut used);
        let known = self.current.get(array.name).copied();
        let place = ArrayPlace { name: array.name_span, span: array.span };
        let old = known.and_then(|at| self.arrays.get_mut(at));
        let mut elements = match old {
            Some(old) if array.append => {
                old.append(fields, &used.conditional, &self.gone);
                self.mark(&used);
                return;
            }
            Some(old) if !self.gone.is_empty() => match old.replace(fields, &used.conditional, &self.gone) {
                None => {
                    old.places.push(place);
                    self.mark(&used);
                    return;
                }
                Some(unused) => {
                    fields = unused;
                    Elements::default()
                }
            },
            Some(old) => old.take_appended_by_functions(),
            None => Elements::default(),
        };
        self.order += 1;
        elements.begin(fields, &used.conditional, &self.gone, array.append);
        elements.places = vec![place];
        elements.order = self.order;
        self.current.insert(array.name, self.arrays.len());
        self.arrays.push(elements);
        // Words that were copied into another array are inspected there.
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

    /// The words of a part of the text, each at its own span.
    pub(super) fn words_of(&mut self, inside: Span) -> Vec<Field<'a>> {
        let mut fields = Vec::new();
        for statement in ShellReader::new(self.source.text(), inside) {
            if let ShellStatement::Command(command) = statement {
                fields.extend(self.expand_all(&command.words, &mut Used::default()));
            }
        }
        fields
    }
}
