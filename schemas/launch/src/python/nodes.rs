//! Nodes of the tree of a program.

use tree_sitter::Node;

/// The named children of a node, without comments.
pub fn named_children(node: Node<'_>) -> Vec<Node<'_>> {
    let mut cursor = node.walk();
    node.named_children(&mut cursor).filter(|child| child.kind() != "comment").collect()
}

/// The text of a node that is a name.
pub fn identifier<'t>(text: &'t str, node: Option<Node<'_>>) -> Option<&'t str> {
    let node = node.filter(|node| node.kind() == "identifier")?;
    text.get(node.byte_range())
}

/// All nodes below a node, without what is below those for which `goes_on` is false; `None` if
/// there are more than `most`.
pub fn descendants<'t>(node: Node<'t>, most: usize, goes_on: impl Fn(Node<'t>) -> bool) -> Option<Vec<Node<'t>>> {
    let mut found = Vec::new();
    let mut pending = vec![node];
    while let Some(next) = pending.pop() {
        let children = named_children(next);
        if found.len() + children.len() > most {
            return None;
        }
        pending.extend(children.iter().copied().filter(|child| goes_on(*child)));
        found.extend(children);
    }
    Some(found)
}
