//! The tree that the target verifies.

/// A node of a [`DraftTree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its token: for the root the one that the target has already produced.
    pub token: u32,
    /// Its parent, which always lies before it; `None` for the root.
    pub parent: Option<usize>,
    /// Steps below the root.
    pub depth: usize,
}

/// The root and the drafts that were kept, every parent before its children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftTree {
    nodes: Vec<Node>,
}

impl DraftTree {
    /// The tree of a root alone: no speculation.
    pub fn root(token: u32) -> Self {
        Self { nodes: vec![Node { token, parent: None, depth: 0 }] }
    }

    /// Adds a node below one that is there and returns its number.
    pub fn add(&mut self, parent: usize, token: u32) -> usize {
        let depth = self.nodes[parent].depth + 1;
        self.nodes.push(Node { token, parent: Some(parent), depth });
        self.nodes.len() - 1
    }

    /// All nodes, the root first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The way from the root to a node, both included.
    pub fn path(&self, node: usize) -> Vec<usize> {
        let mut path: Vec<usize> = std::iter::successors(Some(node), |node| self.nodes[*node].parent).collect();
        path.reverse();
        path
    }

    /// The child of a node that holds a token; the first of them where siblings agree.
    pub fn child(&self, node: usize, token: u32) -> Option<usize> {
        (node + 1..self.nodes.len()).find(|at| self.nodes[*at].parent == Some(node) && self.nodes[*at].token == token)
    }
}
