//! `read`: the names that it assigns, and a here-document that it takes whole:
//! `read -r -d '' FLAGS <<EOF`.

use super::{
    super::shell::{HereDocument, ShellBlock, ShellWord, SimpleCommand, WordPart, WordParts},
    Interpreter, ShellVariable, Used,
    control_flow::Elements,
};

/// Options of `read` with a value.
const WITH_VALUE: [char; 8] = ['a', 'd', 'i', 'n', 'N', 'p', 't', 'u'];

/// The operands of `read`, and whether it reads up to the end of its input.
pub(super) fn operands<'w, 'a>(words: &'w [ShellWord<'a>]) -> (&'w [ShellWord<'a>], bool) {
    let mut reads_all = false;
    let mut at = 0;
    while let Some(option) = words.get(at).and_then(ShellWord::text).filter(|text| text.len() > 1) {
        let Some(letters) = option.strip_prefix('-') else { break };
        at += 1;
        if let Some(last) = letters.chars().next_back().filter(|last| WITH_VALUE.contains(last)) {
            reads_all |= last == 'd' && words.get(at).and_then(ShellWord::text) == Some("");
            at += 1;
        }
    }
    (words.get(at..).unwrap_or_default(), reads_all)
}

impl<'a> Interpreter<'a> {
    /// Assigns a here-document to the variable that `read` puts all of it into. False if another
    /// command takes it.
    pub(super) fn read_into_variable(&mut self, document: &HereDocument<'a>) -> bool {
        let [command] = document.stages.as_slice() else { return false };
        let Some(name) = whole_into(command) else { return false };
        let mut used = Used::default();
        let printed = WordPart::Printed {
            body: document.body,
            is_verbatim: document.is_quoted,
            strips_tabs: document.strips_tabs,
            quoted: true,
        };
        let value = self.text(&WordParts::One(printed), document.body, &mut used);
        let split = self.split_document(document, &mut used);
        self.mark(&used);
        let literal = Self::literal_of(&split);
        // The command ends with an error, so a list follows that does nothing: `|| true`.
        let in_lists = self.arms.iter().rev().take_while(|arms| arms.is(ShellBlock::List)).count();
        let gone = self.gone.get(..self.gone.len().saturating_sub(in_lists)).unwrap_or_default().to_vec();
        self.order += 1;
        let mut words = Elements::default();
        words.begin(split.fields, &split.conditional, &gone, false);
        // A text that does not begin with a flag is a message, unless a command uses it.
        let used = !value.written().trim_start().starts_with('-');
        let scalar = ShellVariable { value, words, literal, used, order: self.order };
        self.scalars.insert(name.into(), scalar);
        self.assigned_outside(name, in_lists);
        true
    }
}

/// The variable into which a command reads all of its input.
fn whole_into<'a>(command: &SimpleCommand<'a>) -> Option<&'a str> {
    let (first, rest) = command.words.split_first()?;
    let (names, reads_all) = operands(rest);
    match (first.text(), names) {
        (Some("read"), [name]) if reads_all => match name.name()? {
            std::borrow::Cow::Borrowed(name) => Some(name),
            std::borrow::Cow::Owned(_) => None,
        },
        _ => None,
    }
}
