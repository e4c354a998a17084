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
    /// What each function returns; `None` if that is not one expression.
    pub returned: HashMap<&'t str, Option<Node<'t>>>,
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
                let Some(name) = identifier(text, node.child_by_field_name("name")) else { return };
                let class = || OwnClass::from_class(text, node);
                self.classes.entry(name).and_modify(|known| *known = None).or_insert_with(class);
            }
            "function_definition" => {
                let Some(name) = identifier(text, node.child_by_field_name("name")) else { return };
                let value = || returned(text, node);
                self.returned.entry(name).and_modify(|known| *known = None).or_insert_with(value);
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
