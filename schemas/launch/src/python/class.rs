//! The class that a program calls under another name: an alias, a name that is bound to a class, a
//! subclass, or `functools.partial` of one.

use tree_sitter::Node;

use super::{
    names::Names,
    nodes::{identifier, named_children},
    strings::DEPTH,
};

/// A class under its own name.
pub struct Class<'t> {
    /// With dots; empty if it is not known.
    pub module: &'t str,
    pub name: &'t str,
    /// Arguments of `functools.partial` that come before those of the call.
    pub presets: Vec<Node<'t>>,
}

impl<'t> Class<'t> {
    /// The class that an expression is another name of; `None` if it is its own name, or unknown.
    pub fn of(text: &'t str, names: &Names<'t>, function: Node<'t>) -> Option<Self> {
        Self::at(text, names, function, 0).filter(|class| {
            let written = text.get(function.byte_range()).unwrap_or_default();
            written != class.name && !is_qualified(written, class)
        })
    }

    fn at(text: &'t str, names: &Names<'t>, node: Node<'t>, depth: usize) -> Option<Self> {
        if depth > DEPTH || !names.spend() {
            return None;
        }
        let aliases = names.aliases();
        match node.kind() {
            "attribute" => {
                let object = text.get(node.child_by_field_name("object")?.byte_range())?;
                let module = aliases.modules.get(object).copied().unwrap_or(object);
                let name = identifier(text, node.child_by_field_name("attribute"))?;
                Some(Self { module, name, presets: Vec::new() })
            }
            "identifier" => {
                let name = text.get(node.byte_range())?;
                if let Some((module, name)) = aliases.imported.get(name) {
                    return Some(Self { module, name, presets: Vec::new() });
                }
                match aliases.bases.get(name).copied().or_else(|| names.value(text, node)) {
                    Some(inner) => Self::at(text, names, inner, depth + 1),
                    None => Some(Self { module: names.module_of(name), name, presets: Vec::new() }),
                }
            }
            "call" => {
                let function = text.get(node.child_by_field_name("function")?.byte_range())?;
                let arguments = named_children(node.child_by_field_name("arguments")?);
                let (first, presets) = arguments.split_first()?;
                if !matches!(function, "partial" | "functools.partial") {
                    return None;
                }
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
