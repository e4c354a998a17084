//! Other names that a program gives to modules and classes: imports under another name,
//! subclasses, and functions that return a class.

use std::collections::HashMap;

use tree_sitter::Node;

use super::{
    nodes::{identifier, named_children},
    own_class::{OwnClass, returned},
};

/// Names that a program gives to modules and classes.
#[derive(Default)]
pub struct Aliases<'t> {
    /// `import vllm as v`: the module of each name.
    pub modules: HashMap<&'t str, &'t str>,
    /// `from vllm import LLM as Model`: the module and the own name.
    pub imported: HashMap<&'t str, (&'t str, &'t str)>,
    /// Classes of the program; `None` for one whose arguments are not followed, or of which there
    /// are two.
    pub classes: HashMap<&'t str, Option<OwnClass<'t>>>,
    /// What each function may return; nothing if that is not known.
    pub returned: HashMap<&'t str, Vec<Node<'t>>>,
}

impl<'t> Aliases<'t> {
    /// Whether a name is that of a class, imported or of the program's own.
    pub fn names_class(&self, text: &str, node: Node<'_>) -> bool {
        let name = text.get(node.byte_range()).unwrap_or_default();
        self.imported.contains_key(name) || self.classes.contains_key(name)
    }

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
                let Some(name) = identifier(text, node.child_by_field_name("name")) else { return };
                let class = || OwnClass::from_class(text, node);
                self.classes.entry(name).and_modify(|known| *known = None).or_insert_with(class);
            }
            "function_definition" => {
                let Some(name) = identifier(text, node.child_by_field_name("name")) else { return };
                let values = || returned(text, node).unwrap_or_default();
                self.returned.entry(name).and_modify(Vec::clear).or_insert_with(values);
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
