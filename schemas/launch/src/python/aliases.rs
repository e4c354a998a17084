//! Other names that a program gives to modules and classes: imports under another name, and
//! subclasses.

use std::collections::HashMap;

use tree_sitter::Node;

use super::nodes::{identifier, named_children};

/// Names that a program gives to modules and classes.
#[derive(Default)]
pub struct Aliases<'t> {
    /// `import vllm as v`: the module of each name.
    pub modules: HashMap<&'t str, &'t str>,
    /// `from vllm import LLM as Model`: the module and the own name.
    pub imported: HashMap<&'t str, (&'t str, &'t str)>,
    /// The base of each class that has no `__init__` of its own, so that it takes the same
    /// arguments.
    pub bases: HashMap<&'t str, Node<'t>>,
}

impl<'t> Aliases<'t> {
    /// Records what a node says about a name.
    pub fn note(&mut self, text: &'t str, node: Node<'t>) {
        match node.kind() {
            "import_statement" => {
                for (module, alias) in aliased(text, node) {
                    self.modules.insert(alias, module);
                }
            }
            "import_from_statement" => {
                let module = node.child_by_field_name("module_name").and_then(|module| text.get(module.byte_range()));
                for (name, alias) in aliased(text, node) {
                    self.imported.extend(module.map(|module| (alias, (module, name))));
                }
            }
            "class_definition" => {
                let name = identifier(text, node.child_by_field_name("name"));
                let bases = node.child_by_field_name("superclasses").map(named_children).unwrap_or_default();
                let body = node.child_by_field_name("body");
                if let (Some(name), [base], false) = (name, bases.as_slice(), has_constructor(text, body)) {
                    self.bases.insert(name, *base);
                }
            }
            _ => {}
        }
    }
}

/// The names of an import with the names that the program gives them.
fn aliased<'t>(text: &'t str, import: Node<'t>) -> Vec<(&'t str, &'t str)> {
    let of = |child: Node<'t>| {
        let name = text.get(child.child_by_field_name("name")?.byte_range())?;
        Some((name, identifier(text, child.child_by_field_name("alias"))?))
    };
    named_children(import).into_iter().filter(|child| child.kind() == "aliased_import").filter_map(of).collect()
}

/// Whether a class says itself which arguments it takes.
fn has_constructor(text: &str, body: Option<Node<'_>>) -> bool {
    body.map(named_children).unwrap_or_default().into_iter().any(|child| {
        let function = match child.kind() {
            "decorated_definition" => child.child_by_field_name("definition"),
            _ => Some(child),
        };
        let name = function.and_then(|function| identifier(text, function.child_by_field_name("name")));
        matches!(name, Some("__init__" | "__new__"))
    })
}
