//! Paths of the trie: inserted, used, and dropped when the trie is full.

use super::{ROOT, Trie, TrieNode};

impl Trie {
    /// Inserts a path, or counts it once more; its nodes become the most recently used ones.
    pub(super) fn insert_path(&mut self, path: &[u32]) {
        // Room for the whole path is made first, as in SGLang, even if some of its nodes exist.
        while self.used() + path.len() > self.rule.capacity && self.drop_oldest() {}
        let mut node = ROOT;
        let mut visited = Vec::with_capacity(path.len());
        for token in path {
            node = match self.children.get(&(node, *token)).copied() {
                Some(child) => {
                    self.unlink_sibling(child);
                    self.nodes[child as usize].frequency = self.nodes[child as usize].frequency.saturating_add(1);
                    child
                }
                None => self.new_node(node, *token),
            };
            self.link_sibling_first(node);
            visited.push(node);
        }
        // A parent is newer than its children, so the oldest node has none.
        for node in visited.into_iter().rev() {
            self.unlink_use(node);
            self.link_newest(node);
        }
    }

    fn used(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    fn new_node(&mut self, parent: u32, token: u32) -> u32 {
        let node = TrieNode { token, parent, frequency: 1, ..TrieNode::default() };
        let place = match self.free.pop() {
            Some(place) => {
                let version = self.nodes[place as usize].version;
                self.nodes[place as usize] = TrieNode { version, ..node };
                place
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        self.children.insert((parent, token), place);
        self.link_newest(place);
        place
    }

    /// Drops the least recently used node; false if there is none.
    fn drop_oldest(&mut self) -> bool {
        let Some(oldest) = self.oldest else { return false };
        self.unlink_use(oldest);
        self.unlink_sibling(oldest);
        let TrieNode { parent, token, version, .. } = self.nodes[oldest as usize];
        self.children.remove(&(parent, token));
        self.nodes[oldest as usize].version = version.wrapping_add(1);
        self.free.push(oldest);
        true
    }

    fn link_sibling_first(&mut self, node: u32) {
        let parent = self.nodes[node as usize].parent as usize;
        let first = self.nodes[parent].first.replace(node);
        (self.nodes[node as usize].before, self.nodes[node as usize].after) = (None, first);
        if let Some(first) = first {
            self.nodes[first as usize].before = Some(node);
        }
    }

    fn unlink_sibling(&mut self, node: u32) {
        let TrieNode { parent, before, after, .. } = self.nodes[node as usize];
        match before {
            Some(before) => self.nodes[before as usize].after = after,
            None => self.nodes[parent as usize].first = after,
        }
        if let Some(after) = after {
            self.nodes[after as usize].before = before;
        }
    }

    fn link_newest(&mut self, node: u32) {
        let newest = self.newest.replace(node);
        (self.nodes[node as usize].newer, self.nodes[node as usize].older) = (None, newest);
        match newest {
            Some(newest) => self.nodes[newest as usize].newer = Some(node),
            None => self.oldest = Some(node),
        }
    }

    fn unlink_use(&mut self, node: u32) {
        let TrieNode { newer, older, .. } = self.nodes[node as usize];
        match newer {
            Some(newer) => self.nodes[newer as usize].older = older,
            None => self.newest = older,
        }
        match older {
            Some(older) => self.nodes[older as usize].newer = newer,
            None => self.oldest = newer,
        }
    }
}
