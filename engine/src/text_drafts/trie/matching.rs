//! The suffixes of a request in the trie.
//!
//! They are kept from round to round and follow the new tokens. So a suffix that was not in the
//! trie stays missing, and with it all suffixes that continue it, even if it has been inserted
//! since: what SGLang drafts depends on this.

use super::{ROOT, Trie};

/// The suffixes of a request's tokens.
#[derive(Clone, Debug, Default)]
pub struct MatchState {
    /// The node of the last n + 1 tokens, with its version, at index n.
    suffixes: Vec<Option<(u32, u32)>>,
    /// Number of tokens of the request then; 0 at first.
    tokens: usize,
}

impl Trie {
    /// The nodes of suffixes of a request's tokens that have children, each with the length of the
    /// suffix; the longest first.
    pub(super) fn anchors(&mut self, request: u64, tokens: &[u32]) -> Vec<(u32, usize)> {
        let state = self.states.remove(&request).unwrap_or_default();
        let suffixes = self.followed(&state, tokens).unwrap_or_else(|| self.looked_up(tokens));
        let found = suffixes.iter().enumerate().rev().filter_map(|(index, node)| Some(((*node)?.0, index + 1)));
        let anchors = found.filter(|(node, _)| self.nodes[*node as usize].first.is_some()).collect();
        self.states.insert(request, MatchState { suffixes, tokens: tokens.len() });
        anchors
    }

    /// The suffixes after the new tokens of a request; `None` if they have to be looked up.
    fn followed(&self, state: &MatchState, tokens: &[u32]) -> Option<Vec<Option<(u32, u32)>>> {
        let depth = self.rule.max_depth;
        let new = tokens.len().checked_sub(state.tokens).filter(|new| state.tokens > 0 && *new <= depth)?;
        let stays = |node: &Option<(u32, u32)>| node.is_none_or(|(at, version)| self.version(at) == version);
        if !state.suffixes.iter().all(stays) {
            return None;
        }
        let mut suffixes = state.suffixes.clone();
        for token in &tokens[tokens.len() - new..] {
            let shorter = std::iter::once(Some((ROOT, self.version(ROOT)))).chain(suffixes);
            suffixes = shorter.take(depth).map(|node| self.child(node?.0, *token)).collect();
        }
        Some(suffixes)
    }

    fn looked_up(&self, tokens: &[u32]) -> Vec<Option<(u32, u32)>> {
        let suffix = |length: usize| {
            let root = (ROOT, self.version(ROOT));
            tokens[tokens.len() - length..].iter().try_fold(root, |(node, _), token| self.child(node, *token))
        };
        (1..=tokens.len().min(self.rule.max_depth)).map(suffix).collect()
    }

    fn child(&self, node: u32, token: u32) -> Option<(u32, u32)> {
        self.children.get(&(node, token)).map(|child| (*child, self.version(*child)))
    }

    fn version(&self, node: u32) -> u32 {
        self.nodes[node as usize].version
    }
}
