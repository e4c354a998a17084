//! Keys of a dictionary that a program assembles in steps, and gives to an engine's class.

use schemas::text::Span;
use tree_sitter::Node;

use super::{
    names::PythonNames,
    nodes::named_children,
    strings::{DEPTH, is_dict, known, parts, span},
};

/// The keys of a dictionary with their places and values, as far as they are known.
#[derive(Default)]
pub struct DictionaryPairs<'t> {
    pub known: Vec<DictionaryPair<'t>>,
    /// Keys that a branch gives, and nothing else.
    pub perhaps: Vec<DictionaryPair<'t>>,
    /// What may give others.
    pub others: Vec<Node<'t>>,
}

/// A key that is given.
#[derive(Clone)]
pub struct DictionaryPair<'t> {
    pub name: String,
    pub place: Span,
    pub value: Node<'t>,
    /// Whether a branch may give it another value.
    pub may_change: bool,
}

impl<'t> DictionaryPairs<'t> {
    /// The pairs of a dictionary that is used at `at`: an expression, what a function returns, or
    /// the name of one with its changes until then. What is not followed is one of the others;
    /// `None` if a key is no text.
    pub fn at_use(text: &'t str, names: &PythonNames<'t>, own: Node<'t>, at: Node<'t>, depth: usize) -> Option<Self> {
        let mut pairs = Self::default();
        if depth > DEPTH || !names.spend() {
            pairs.others.push(own);
            return Some(pairs);
        }
        let is_named = own.kind() == "identifier";
        let given = if is_named { names.value(text, own) } else { Some(own) };
        let name = text.get(own.byte_range()).unwrap_or_default();
        let updates = if is_named { names.updates(text, name, at.start_byte()) } else { Some(Vec::new()) };
        let Some((given, updates)) = given.zip(updates) else {
            pairs.others.push(own);
            return Some(pairs);
        };
        match names.aliases().returned_by(text, given) {
            Some(returned) => pairs.take(Self::at_use(text, names, returned, returned, depth + 1)?),
            None if given.kind() == "dictionary" || is_dict(text, given) => {
                pairs.add_all(text, names, given, at, depth)?;
            }
            None => {
                pairs.others.push(own);
                return Some(pairs);
            }
        }
        updates.into_iter().try_for_each(|update| pairs.change(text, names, update, own, depth))?;
        Some(pairs)
    }

    /// Adds the pairs of `{…}`, or the keywords of a call such as `dict(…)`; `None` where a key is
    /// no text.
    fn add_all(
        &mut self,
        text: &'t str,
        names: &PythonNames<'t>,
        dictionary: Node<'t>,
        at: Node<'t>,
        depth: usize,
    ) -> Option<()> {
        let is_call = dictionary.kind() != "dictionary";
        let of_pairs = if is_call { dictionary.child_by_field_name("arguments")? } else { dictionary };
        for pair in named_children(of_pairs) {
            let key = pair.child_by_field_name(if is_call { "name" } else { "key" });
            match key.zip(pair.child_by_field_name("value")) {
                Some((key, given)) => {
                    let (name, place) = match is_call {
                        true => (text.get(key.byte_range())?.to_owned(), span(key)),
                        false => known(&parts(text, names, key, 0)?)?,
                    };
                    self.set(DictionaryPair { name, place, value: given, may_change: false });
                }
                None => self.add_splat(text, names, pair, at, depth)?,
            }
        }
        Some(())
    }

    /// Adds the pairs of `**settings`.
    fn add_splat(
        &mut self,
        text: &'t str,
        names: &PythonNames<'t>,
        splat: Node<'t>,
        at: Node<'t>,
        depth: usize,
    ) -> Option<()> {
        let inner = splat.named_child(0).filter(|_| splat.kind() == "dictionary_splat");
        let Some(inner) = inner else {
            self.others.push(splat);
            return Some(());
        };
        // Its changes after this dictionary has taken its keys are not told apart.
        let is_constant = inner.kind() != "identifier"
            || names.updates(text, text.get(inner.byte_range())?, usize::MAX).is_some_and(|updates| updates.is_empty());
        let other = match is_constant {
            true => Self::at_use(text, names, inner, at, depth + 1)?,
            false => Self { others: vec![splat], ..Self::default() },
        };
        self.take(other);
        Some(())
    }

    /// Takes the pairs of another dictionary in place of its own.
    fn take(&mut self, other: Self) {
        if !other.others.is_empty() {
            // They may replace what is known.
            self.known.iter_mut().for_each(|pair| pair.may_change = true);
        }
        self.others.extend(other.others);
        self.perhaps.extend(other.perhaps);
        other.known.into_iter().for_each(|pair| self.set(pair));
    }

    /// Applies `name["key"] = value`, `name.update(…)` or `name |= …`. One that may not happen
    /// before `used` makes the values of its keys unknown.
    fn change(
        &mut self,
        text: &'t str,
        names: &PythonNames<'t>,
        update: Node<'t>,
        used: Node<'t>,
        depth: usize,
    ) -> Option<()> {
        let mut own = Self::default();
        match update.kind() {
            "assignment" => {
                let key = update.child_by_field_name("left")?.child_by_field_name("subscript")?;
                let (name, place) = known(&parts(text, names, key, 0)?)?;
                let value = update.child_by_field_name("right")?;
                own.set(DictionaryPair { name, place, value, may_change: false });
            }
            "augmented_assignment" => {
                own = Self::at_use(text, names, update.child_by_field_name("right")?, update, depth + 1)?;
            }
            _ => match named_children(update.child_by_field_name("arguments")?).as_slice() {
                [one] if !matches!(one.kind(), "keyword_argument" | "dictionary_splat") => {
                    own = Self::at_use(text, names, *one, update, depth + 1)?;
                }
                _ => own.add_all(text, names, update, update, depth)?,
            },
        }
        if happens_before(update, used) {
            self.take(own);
            return Some(());
        }
        self.others.extend(own.others);
        let is_followed = is_in_branch(update, used);
        for pair in own.known.into_iter().chain(own.perhaps) {
            match self.known.iter_mut().find(|known| known.name == pair.name) {
                Some(known) => known.may_change = true,
                None if is_followed => self.perhaps.push(pair),
                None => self.others.push(pair.value),
            }
        }
        Some(())
    }

    /// Gives a key its last value.
    fn set(&mut self, pair: DictionaryPair<'t>) {
        self.known.retain(|own| own.name != pair.name);
        self.perhaps.retain(|own| own.name != pair.name);
        self.known.push(pair);
    }
}

/// Whether a statement is in a branch of the function that also contains the expression after it,
/// so that either it is executed before, or not at all.
fn is_in_branch(statement: Node<'_>, used: Node<'_>) -> bool {
    let mut around = statement.parent();
    while let Some(node) = around.filter(|node| node.kind() != "function_definition") {
        if node.start_byte() <= used.start_byte() && used.end_byte() <= node.end_byte() {
            return true;
        }
        around = node.parent();
    }
    around.is_some_and(|node| node.start_byte() <= used.start_byte() && used.end_byte() <= node.end_byte())
}

/// Whether a statement is executed whenever the expression after it is.
fn happens_before(statement: Node<'_>, used: Node<'_>) -> bool {
    let branches = ["elif_clause", "else_clause", "except_clause", "for_statement", "if_statement", "while_statement"];
    let mut around = statement.parent();
    while let Some(node) = around {
        if branches.contains(&node.kind()) || node.kind() == "function_definition" {
            let contains_both = node.start_byte() <= used.start_byte() && used.end_byte() <= node.end_byte();
            // Statements of one branch are one after the other.
            return contains_both && node.kind() == "function_definition";
        }
        around = node.parent();
    }
    true
}
