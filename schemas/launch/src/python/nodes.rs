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
