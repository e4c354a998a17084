//! The tree that the target verifies.

/// A node of a [`DraftTree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraftNode {
    /// Its token; the root's is the one that the target has already produced.
    pub token: u32,
    /// Its parent, which always comes before it; `None` for the root.
    pub parent: Option<usize>,
    /// Number of steps below the root.
    pub depth: usize,
}

/// The root and the drafts that were kept; parents come before their children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftTree {
    nodes: Vec<DraftNode>,
}

impl DraftTree {
    /// A tree with only a root: no speculation.
    pub fn root(token: u32) -> Self {
        Self { nodes: vec![DraftNode { token, parent: None, depth: 0 }] }
    }

    /// Adds a node below an existing one and returns its index.
    pub fn add(&mut self, parent: usize, token: u32) -> usize {
        let depth = self.nodes[parent].depth + 1;
        self.nodes.push(DraftNode { token, parent: Some(parent), depth });
        self.nodes.len() - 1
    }

    /// All nodes, root first.
    pub fn nodes(&self) -> &[DraftNode] {
        &self.nodes
    }

    /// The path from the root to a node, including both.
    pub fn path(&self, node: usize) -> Vec<usize> {
        let mut path: Vec<usize> = std::iter::successors(Some(node), |node| self.nodes[*node].parent).collect();
        path.reverse();
        path
    }

    /// The child of a node that has this token; the first one if several siblings have it.
    pub fn child(&self, node: usize, token: u32) -> Option<usize> {
        (node + 1..self.nodes.len()).find(|at| self.nodes[*at].parent == Some(node) && self.nodes[*at].token == token)
    }
}
