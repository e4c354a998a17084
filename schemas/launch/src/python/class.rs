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

/// Maximum number of classes that an expression may give.
const MOST_WAYS: usize = 8;

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
    /// What an expression may be another name of: one class, with several sets of arguments where
    /// the program chooses among them. Nothing if it is its own name, or unknown, and where it may
    /// be one of several classes, since the arguments are those of one of them.
    pub fn from_alias(text: &'t str, names: &PythonNames<'t>, function: Node<'t>) -> Vec<Self> {
        let mut found: Vec<Self> = Vec::new();
        for class in Self::each(text, names, function, 0) {
            let written = text.get(function.byte_range()).unwrap_or_default();
            let is_own = names.aliases().classes.contains_key(written);
            let is_alias = is_own || (written != class.name && !is_qualified(written, &class));
            if is_alias && !found.iter().any(|known| known.is_same(&class)) && found.len() < MOST_WAYS {
                found.push(class);
            }
        }
        let is_one = found.windows(2).all(|pair| (pair[0].module, pair[0].name) == (pair[1].module, pair[1].name));
        if is_one { found } else { Vec::new() }
    }

    /// The classes that an expression may give: one for each `return` of a function, and both sides
    /// of a condition.
    fn each(text: &'t str, names: &PythonNames<'t>, node: Node<'t>, depth: usize) -> Vec<Self> {
        let next = |inner: Node<'t>| Self::each(text, names, inner, depth + 1);
        if depth > DEPTH || !names.spend() {
            return Vec::new();
        }
        match node.kind() {
            "conditional_expression" => [0, 2].iter().filter_map(|at| node.named_child(*at)).flat_map(next).collect(),
            "identifier" if !names.aliases().names_class(text, node) => match names.value(text, node) {
                Some(inner) => next(inner),
                None => Self::at(text, names, node, depth).into_iter().collect(),
            },
            "call" => {
                let function =
                    node.child_by_field_name("function").and_then(|function| text.get(function.byte_range()));
                match function.and_then(|function| names.aliases().returned.get(function)) {
                    Some(returned) => returned.iter().copied().flat_map(next).collect(),
                    None => Self::at(text, names, node, depth).into_iter().collect(),
                }
            }
            _ => Self::at(text, names, node, depth).into_iter().collect(),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        let constructors = self.constructors.iter().zip(&other.constructors);
        (self.module, self.name, &self.presets) == (other.module, other.name, &other.presets)
            && self.constructors.len() == other.constructors.len()
            && constructors.into_iter().all(|(one, other)| Rc::ptr_eq(one, other))
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
                    return Self::at(text, names, aliases.returned_by(text, node)?, depth + 1);
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

#[cfg(test)]
mod tests {
    use schemas::text::Source;

    use crate::{Options, parse};

    /// The engines that a program starts.
    fn check(program: &str, expected: &[&str]) {
        let text = format!("import sglang as sgl\nfrom vllm import LLM as Model\n{program}");
        let parsed = parse(&Source::new("a.py", text), &Options::default());
        let found: Vec<&str> = parsed.launches.iter().map(|launch| launch.engine.word()).collect();
        assert_eq!(found, expected, "{program}");
    }

    #[test]
    fn a_function_may_give_one_of_several_sets_of_arguments() {
        let function = "def engine(fast):\n  if fast:\n    return partial(Model, dtype=\"half\")\n  return Model\n";
        check(&format!("{function}engine(x)(seed=1)\n"), &["vllm", "vllm"]);
        check(&format!("{function}Own = engine(x)\nOwn(seed=1)\n"), &["vllm", "vllm"]);
        check("Own = partial(Model, dtype=\"half\") if x else Model\nOwn(seed=1)\n", &["vllm", "vllm"]);
        // Both give the same.
        let same = "def engine(fast):\n  if fast:\n    return Model\n  return Model\n";
        check(&format!("{same}engine(x)(seed=1)\n"), &["vllm"]);
        // Which class it is depends on the call.
        let either = "def engine(fast):\n  if fast:\n    return sgl.Engine\n  return Model\n";
        check(&format!("{either}engine(x)(seed=1)\n"), &[]);
        let generator = "def engine(fast):\n  yield Model\n  return Model\n";
        check(&format!("{generator}engine(x)(seed=1)\n"), &[]);
    }
}
