//! Arguments of a call, and those of them that reach an engine's class through the constructors of
//! a program's own classes.

use schemas::keywords::Callee;
use tree_sitter::Node;

use super::{
    dictionary::{DictionaryPair, DictionaryPairs},
    names::PythonNames,
    nodes::identifier,
    own_class::{ClassParameter, Constructor, Method, ParameterKind},
    strings::span,
};

/// An argument.
#[derive(Clone)]
pub enum GivenArgument<'t> {
    Keyword(DictionaryPair<'t>),
    /// A keyword that a branch gives.
    Perhaps(DictionaryPair<'t>),
    Positional(Node<'t>),
    /// What may give others.
    Others(Node<'t>),
}

impl<'t> GivenArgument<'t> {
    /// The arguments in parentheses; `None` if a key of a dictionary is no text.
    pub fn all(text: &'t str, names: &PythonNames<'t>, nodes: impl Iterator<Item = Node<'t>>) -> Option<Vec<Self>> {
        let mut all = Vec::new();
        for node in nodes {
            match node.kind() {
                "keyword_argument" => {
                    let (name, value) = (node.child_by_field_name("name")?, node.child_by_field_name("value")?);
                    let pair = DictionaryPair {
                        name: text.get(name.byte_range())?.to_owned(),
                        place: span(name),
                        value,
                        may_change: false,
                    };
                    all.push(Self::Keyword(pair));
                }
                "dictionary_splat" => all.extend(Self::from_dictionary(text, names, node.named_child(0)?)?),
                "list_splat" => all.push(Self::Others(node)),
                _ => all.push(Self::Positional(node)),
            }
        }
        Some(all)
    }

    /// The keys of a dictionary, or of the name of one, as far as they are known.
    pub fn from_dictionary(text: &'t str, names: &PythonNames<'t>, own: Node<'t>) -> Option<Vec<Self>> {
        let DictionaryPairs { known, perhaps, others } = DictionaryPairs::at_use(text, names, own, own, 0)?;
        let others = others.into_iter().map(Self::Others);
        Some(others.chain(known.into_iter().map(Self::Keyword)).chain(perhaps.into_iter().map(Self::Perhaps)).collect())
    }

    fn named(&self) -> Option<&DictionaryPair<'t>> {
        match self {
            Self::Keyword(pair) | Self::Perhaps(pair) => Some(pair),
            Self::Positional(_) | Self::Others(_) => None,
        }
    }
}

impl<'t> Constructor<'t> {
    /// What the base is given where a class is given `given`; `None` if that is not followed.
    /// Fields that the engine's class lacks do not reach it.
    pub fn passed(
        &self,
        text: &'t str,
        names: &PythonNames<'t>,
        given: Vec<GivenArgument<'t>>,
        callee: Option<Callee>,
    ) -> Option<Vec<GivenArgument<'t>>> {
        match self {
            Self::Method(method) => method.passed(text, names, &given),
            Self::Fields(fields) => {
                let is_own = |name: &str| {
                    fields.iter().any(|(field, _)| *field == name)
                        && callee.is_none_or(|callee| callee.keyword(name, None).is_none())
                };
                Some(given.into_iter().filter(|one| !one.named().is_some_and(|pair| is_own(&pair.name))).collect())
            }
        }
    }
}

impl<'t> Method<'t> {
    fn passed(
        &self,
        text: &'t str,
        names: &PythonNames<'t>,
        given: &[GivenArgument<'t>],
    ) -> Option<Vec<GivenArgument<'t>>> {
        for _ in &self.passed {
            names.spend().then_some(())?;
        }
        let mut passed = Vec::new();
        for argument in GivenArgument::all(text, names, self.passed.iter().copied().filter(|node| !is_splat(*node)))? {
            passed.push(self.replaced(text, given, argument));
        }
        for splat in self.passed.iter().copied().filter(|node| is_splat(*node)) {
            let inner = splat.named_child(0)?;
            let own = identifier(text, Some(inner)).and_then(|name| self.parameter(name));
            match own {
                Some(own) if self.changed.contains(own.name) => passed.push(GivenArgument::Others(splat)),
                Some(ClassParameter { kind: ParameterKind::OtherKeywords, .. }) => {
                    passed.extend(self.other_keywords(given))
                }
                Some(ClassParameter { kind: ParameterKind::Others, .. }) => passed.extend(self.other_values(given)),
                _ if splat.kind() == "dictionary_splat" => {
                    passed.extend(GivenArgument::from_dictionary(text, names, inner)?);
                }
                _ => passed.push(GivenArgument::Others(splat)),
            }
        }
        Some(passed)
    }

    fn parameter(&self, name: &str) -> Option<&ClassParameter<'t>> {
        self.parameters.iter().find(|parameter| parameter.name == name)
    }

    /// An argument with what the call gives in place of a parameter.
    fn replaced(&self, text: &'t str, given: &[GivenArgument<'t>], argument: GivenArgument<'t>) -> GivenArgument<'t> {
        let of = |node: Node<'t>| {
            let parameter = identifier(text, Some(node)).and_then(|name| self.parameter(name))?;
            Some(self.value(parameter, given, node))
        };
        match argument {
            GivenArgument::Keyword(pair) => match of(pair.value) {
                Some((value, may_change)) => GivenArgument::Keyword(DictionaryPair { value, may_change, ..pair }),
                None => GivenArgument::Keyword(pair),
            },
            GivenArgument::Positional(node) => match of(node) {
                Some((value, false)) => GivenArgument::Positional(value),
                _ => GivenArgument::Positional(node),
            },
            other => other,
        }
    }

    /// The value of a parameter that is used at `at`, and whether it may be another.
    fn value(&self, parameter: &ClassParameter<'t>, given: &[GivenArgument<'t>], at: Node<'t>) -> (Node<'t>, bool) {
        if self.changed.contains(parameter.name) {
            return (at, true);
        }
        for one in given {
            match one {
                GivenArgument::Keyword(pair) if pair.name == parameter.name => return (pair.value, pair.may_change),
                GivenArgument::Perhaps(pair) if pair.name == parameter.name => return (pair.value, true),
                _ => {}
            }
        }
        let mut positional = self.parameters.iter().filter(|one| one.kind == ParameterKind::Positional);
        let place = positional.position(|one| one.name == parameter.name);
        if let Some(value) = place.and_then(|place| positional_values(given).nth(place)) {
            return (value, false);
        }
        let is_open = given.iter().any(|one| matches!(one, GivenArgument::Others(_)));
        match parameter.default {
            Some(default) => (default, is_open),
            None => (at, true),
        }
    }

    /// What `**kwargs` takes.
    fn other_keywords(&self, given: &[GivenArgument<'t>]) -> Vec<GivenArgument<'t>> {
        let is_taken = |one: &GivenArgument<'t>| {
            let named = one.named().and_then(|pair| self.parameter(&pair.name));
            named.is_some_and(|own| matches!(own.kind, ParameterKind::Positional | ParameterKind::Keyword))
        };
        let keeps = |one: &&GivenArgument<'t>| !matches!(one, GivenArgument::Positional(_)) && !is_taken(one);
        given.iter().filter(keeps).cloned().collect()
    }

    /// What `*args` takes.
    fn other_values(&self, given: &[GivenArgument<'t>]) -> Vec<GivenArgument<'t>> {
        let own = self.parameters.iter().filter(|one| one.kind == ParameterKind::Positional).count();
        positional_values(given).skip(own).map(GivenArgument::Positional).collect()
    }
}

fn positional_values<'t>(given: &[GivenArgument<'t>]) -> impl Iterator<Item = Node<'t>> {
    given.iter().filter_map(|one| match one {
        GivenArgument::Positional(node) => Some(*node),
        _ => None,
    })
}

fn is_splat(node: Node<'_>) -> bool {
    matches!(node.kind(), "dictionary_splat" | "list_splat")
}
