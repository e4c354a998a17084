//! Lists of words that no command uses: the words of a variable or an array may themselves be a
//! launch.

use std::sync::Arc;

use super::{
    super::{
        command::{Field, ShellCommand},
        document::Surroundings,
    },
    Interpreter, LaunchScript, MOST_COMMANDS, ShellVariable,
    control_flow::{Elements, OnPath, ways},
};

impl<'a> Interpreter<'a> {
    pub(super) fn finish(self) -> LaunchScript<'a> {
        // A list of words without a flag says nothing that can be checked.
        let named = |fields: &[Field<'_>]| {
            fields.iter().any(|field| field.value.known().is_some_and(|text| text.starts_with('-')))
        };
        let (exported, pinned) = (&self.exported, self.pinned.flatten());
        let is_untaken = |way: &OnPath<'a>| way.on.iter().any(|on| self.untaken.contains(&(on.block, on.turn)));
        let line = |way: OnPath<'a>, arrays| ShellCommand {
            is_untaken: is_untaken(&way),
            is_forwarded: false,
            words: way.words,
            perhaps: way.perhaps,
            branches: way.branches,
            is_variable: true,
            broken_at: None,
            arrays,
            surroundings: Surroundings { environment: Arc::clone(exported), is_open: false, image: None },
            version: pinned,
            passed_to: None,
        };
        let lines_of = |elements: Elements<'a>| {
            let (mut words, mut conditional) = (Vec::new(), Vec::new());
            elements.expand(&[], &mut words, &mut conditional);
            let (order, places) = (elements.order, elements.places);
            let on_ways = ways(words, &conditional, &[]).into_iter().filter(move |way| named(&way.words));
            on_ways.map(move |way| (order, line(way, places.clone())))
        };
        let arrays = self.arrays.into_iter().filter(|elements| !elements.used);
        let mut rest: Vec<(usize, ShellCommand<'a>)> = arrays.flat_map(lines_of).take(MOST_COMMANDS).collect();
        let scalars = self.scalars.into_values().filter(|scalar| !scalar.used && scalar.words.is_list());
        let lines_of_scalar = |scalar: ShellVariable<'a>| {
            let (mut words, mut conditional) = (Vec::new(), Vec::new());
            scalar.words.expand(&[], &mut words, &mut conditional);
            let on_ways = ways(words, &conditional, &[]).into_iter().filter(|way| named(&way.words));
            on_ways.map(move |way| (scalar.order, line(way, Vec::new())))
        };
        rest.extend(scalars.flat_map(lines_of_scalar).take(MOST_COMMANDS));
        // Scalars are in a map, and findings come in the order of the text.
        rest.sort_by_key(|(order, _)| *order);
        rest.truncate(MOST_COMMANDS);
        let mut commands = self.commands;
        commands.extend(rest.into_iter().map(|(_, line)| line));
        LaunchScript { commands, documents: self.documents, troubles: self.troubles }
    }
}
