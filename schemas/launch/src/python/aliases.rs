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

    /// What a call of a function of the program returns, if that is one expression.
    pub fn returned_by(&self, text: &str, call: Node<'_>) -> Option<Node<'t>> {
        let function = call.child_by_field_name("function").filter(|_| call.kind() == "call")?;
        match self.returned.get(text.get(function.byte_range())?)?.as_slice() {
            [returned] => Some(*returned),
            _ => None,
        }
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

#[cfg(test)]
mod tests {
    use schemas::{flags::Key, text::Source};

    use crate::{Options, parse};

    /// The target and the number of steps of the only launch of a program.
    fn check(program: &str, expected: [Option<&str>; 2]) {
        let text = format!("import subprocess\nimport sglang as sgl\n{program}");
        let launches = parse(&Source::new("a.py", text), &Options::default()).launches;
        assert_eq!(launches.len(), 1, "{program}");
        let found = [Key::ModelPath, Key::SpeculativeNumSteps].map(|key| launches[0].text(key).map(|text| text.value));
        assert_eq!(found, expected, "{program}");
    }

    #[test]
    fn a_function_returns_keywords_of_a_class() {
        let plain = "def given(path):\n  return {\"model_path\": \"m\", \"tp_size\": 2}\n";
        check(&format!("{plain}sgl.Engine(**given(x), speculative_num_steps=3)\n"), [Some("m"), Some("3")]);
        let steps =
            "def given():\n  own = dict(model_path=\"m\")\n  own[\"speculative_num_steps\"] = 3\n  return own\n";
        check(&format!("{steps}sgl.Engine(**given())\n"), [Some("m"), Some("3")]);
        check(&format!("{steps}settings = given()\nsgl.Engine(**settings)\n"), [Some("m"), Some("3")]);
        // The parameter of a function is not known, nor is what one of two returns gives.
        let parameter = "def given(steps):\n  return dict(model_path=\"m\", speculative_num_steps=steps)\n";
        check(&format!("{parameter}sgl.Engine(**given(3))\n"), [Some("m"), None]);
        let either = "def given(x):\n  if x:\n    return dict(speculative_num_steps=3)\n  return {}\n";
        check(&format!("{either}sgl.Engine(model_path=\"m\", **given(x))\n"), [Some("m"), None]);
    }

    #[test]
    fn a_function_returns_words_of_a_command() {
        let function = "def given():\n  return [\"--model-path\", \"m\", \"--speculative-num-steps\", \"3\"]\n";
        let start = "subprocess.Popen([\"python3\", \"-m\", \"sglang.launch_server\"]";
        check(&format!("{function}{start} + given())\n"), [Some("m"), Some("3")]);
    }
}
