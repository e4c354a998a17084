//! The class that a program calls under another name: an alias, a name that is bound to a class, a
//! subclass, `functools.partial` of one, or what a function returns.

use std::rc::Rc;

use tree_sitter::Node;

use super::{
    names::PythonNames,
    nodes::{identifier, named_children},
    own_class::Constructor,
    strings::DEPTH,
};

/// Maximum number of nodes around a call that are searched for the class.
const MOST_AROUND: usize = 16;

/// A class under its own name.
pub struct Class<'t> {
    /// With dots; empty if it is not known.
    pub module: &'t str,
    pub name: &'t str,
    /// Arguments of `functools.partial` that come before those of the call.
    pub presets: Vec<Node<'t>>,
    /// Constructors of the program through which arguments go, from the class that it calls on.
    pub constructors: Vec<Rc<Constructor<'t>>>,
}

impl<'t> Class<'t> {
    /// The class that an expression is another name of; `None` if it is its own name, or unknown.
    pub fn from_alias(text: &'t str, names: &PythonNames<'t>, function: Node<'t>) -> Option<Self> {
        Self::at(text, names, function, 0).filter(|class| {
            let written = text.get(function.byte_range()).unwrap_or_default();
            let is_own = names.aliases().classes.contains_key(written);
            is_own || (written != class.name && !is_qualified(written, class))
        })
    }

    /// The base whose constructor a class of the program calls, if the program does not use the
    /// class in a way that is followed.
    pub fn from_base(text: &'t str, names: &PythonNames<'t>, call: Node<'t>) -> Option<Self> {
        let mut around = call.parent();
        for _ in 0..MOST_AROUND {
            around = around.filter(|node| node.kind() != "class_definition").map_or(around, |node| node.parent());
        }
        let class = around.filter(|node| node.kind() == "class_definition")?;
        let name = identifier(text, class.child_by_field_name("name"))?;
        let is_followed = names.aliases().classes.get(name).is_some_and(Option::is_some);
        if is_followed && names.uses(name) > 1 {
            return None;
        }
        let bases = named_children(class.child_by_field_name("superclasses")?);
        let [base] = bases.as_slice() else { return None };
        Self::at(text, names, *base, 0)
    }

    fn named(module: &'t str, name: &'t str) -> Self {
        Self { module, name, presets: Vec::new(), constructors: Vec::new() }
    }

    fn at(text: &'t str, names: &PythonNames<'t>, node: Node<'t>, depth: usize) -> Option<Self> {
        if depth > DEPTH || !names.spend() {
            return None;
        }
        let aliases = names.aliases();
        match node.kind() {
            "attribute" => {
                let object = text.get(node.child_by_field_name("object")?.byte_range())?;
                let module = aliases.modules.get(object).copied().unwrap_or(object);
                let name = identifier(text, node.child_by_field_name("attribute"))?;
                Some(Self::named(module, name))
            }
            "identifier" => {
                let name = text.get(node.byte_range())?;
                if let Some((module, name)) = aliases.imported.get(name) {
                    return Some(Self::named(module, name));
                }
                if let Some(own) = aliases.classes.get(name) {
                    let own = own.as_ref()?;
                    let mut class = Self::at(text, names, own.base, depth + 1)?;
                    class.constructors.splice(0..0, own.constructor.clone());
                    return Some(class);
                }
                match names.value(text, node) {
                    Some(inner) => Self::at(text, names, inner, depth + 1),
                    None => Some(Self::named(names.module_of(name), name)),
                }
            }
            "call" => {
                let function = text.get(node.child_by_field_name("function")?.byte_range())?;
                if !matches!(function, "partial" | "functools.partial") {
                    let returned = aliases.returned.get(function).copied().flatten()?;
                    return Self::at(text, names, returned, depth + 1);
                }
                let arguments = named_children(node.child_by_field_name("arguments")?);
                let (first, presets) = arguments.split_first()?;
                let mut class = Self::at(text, names, *first, depth + 1)?;
                class.presets.extend(presets);
                Some(class)
            }
            _ => None,
        }
    }
}

fn is_qualified(written: &str, class: &Class<'_>) -> bool {
    written.strip_prefix(class.module).and_then(|rest| rest.strip_prefix('.')) == Some(class.name)
}
