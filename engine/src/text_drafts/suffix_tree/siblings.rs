//! The order of siblings: by count, with neighbours of the same count in a group, so that a change
//! of a count is a move of constant cost.

use super::SuffixTree;

/// Siblings with the same count, which are neighbours.
#[derive(Clone, Copy, Debug)]
pub struct SiblingGroup {
    first: u32,
    last: u32,
}

impl SuffixTree {
    /// Adds one to the count of a node.
    pub(super) fn increment(&mut self, node: u32) {
        let count = self.nodes[node as usize].count;
        let before = self.nodes[node as usize].before;
        match before.filter(|before| self.nodes[*before as usize].count <= count + 1) {
            Some(before) => {
                let first = self.groups[self.nodes[before as usize].group as usize].first;
                self.unlink(node);
                self.nodes[node as usize].count = count + 1;
                self.link_before(node, first);
            }
            None => {
                self.leave_group(node);
                self.nodes[node as usize].count = count + 1;
                self.join_group(node);
            }
        }
    }

    /// Subtracts one from the count of a node. It moves after those that had the same count.
    pub(super) fn decrement(&mut self, node: u32) {
        let last = self.groups[self.nodes[node as usize].group as usize].last;
        if last == node {
            self.leave_group(node);
            self.nodes[node as usize].count -= 1;
            self.join_group(node);
        } else {
            self.unlink(node);
            self.nodes[node as usize].count -= 1;
            self.link_after(node, last);
        }
    }

    /// Makes a node the last child of its parent.
    pub(super) fn link_last(&mut self, node: u32) {
        let parent = self.nodes[node as usize].parent as usize;
        match self.nodes[parent].last {
            Some(last) => self.link_after(node, last),
            None => {
                (self.nodes[parent].first, self.nodes[parent].last) = (Some(node), Some(node));
                self.join_group(node);
            }
        }
    }

    fn link_after(&mut self, node: u32, other: u32) {
        let (parent, after) = (self.nodes[node as usize].parent as usize, self.nodes[other as usize].after);
        (self.nodes[node as usize].before, self.nodes[node as usize].after) = (Some(other), after);
        self.nodes[other as usize].after = Some(node);
        match after {
            Some(after) => self.nodes[after as usize].before = Some(node),
            None => self.nodes[parent].last = Some(node),
        }
        self.join_group(node);
    }

    fn link_before(&mut self, node: u32, other: u32) {
        let (parent, before) = (self.nodes[node as usize].parent as usize, self.nodes[other as usize].before);
        (self.nodes[node as usize].before, self.nodes[node as usize].after) = (before, Some(other));
        self.nodes[other as usize].before = Some(node);
        match before {
            Some(before) => self.nodes[before as usize].after = Some(node),
            None => self.nodes[parent].first = Some(node),
        }
        self.join_group(node);
    }

    /// Takes a node out of the order.
    pub(super) fn unlink(&mut self, node: u32) {
        self.leave_group(node);
        let (parent, before, after) = {
            let node = &mut self.nodes[node as usize];
            (node.parent as usize, node.before.take(), node.after.take())
        };
        match before {
            Some(before) => self.nodes[before as usize].after = after,
            None => self.nodes[parent].first = after,
        }
        match after {
            Some(after) => self.nodes[after as usize].before = before,
            None => self.nodes[parent].last = before,
        }
    }

    /// Enters a linked node into the group of the neighbours with its count.
    fn join_group(&mut self, node: u32) {
        let count = self.nodes[node as usize].count;
        let (before, after) = (self.nodes[node as usize].before, self.nodes[node as usize].after);
        let equal = |other: &u32| self.nodes[*other as usize].count == count;
        if let Some(before) = before.filter(equal) {
            let group = self.nodes[before as usize].group;
            self.nodes[node as usize].group = group;
            let group = &mut self.groups[group as usize];
            group.last = if group.last == before { node } else { group.last };
        } else if let Some(after) = after.filter(equal) {
            let group = self.nodes[after as usize].group;
            self.nodes[node as usize].group = group;
            self.groups[group as usize].first = node;
        } else {
            let group = SiblingGroup { first: node, last: node };
            let place = match self.free_groups.pop() {
                Some(place) => {
                    self.groups[place as usize] = group;
                    place
                }
                None => {
                    self.groups.push(group);
                    self.groups.len() as u32 - 1
                }
            };
            self.nodes[node as usize].group = place;
        }
    }

    /// Takes a linked node out of its group.
    pub(super) fn leave_group(&mut self, node: u32) {
        let super::SuffixNode { group, before, after, .. } = self.nodes[node as usize];
        let SiblingGroup { first, last } = self.groups[group as usize];
        match (first == node, last == node) {
            (true, true) => self.free_groups.push(group),
            (true, false) => self.groups[group as usize].first = after.unwrap_or(last),
            (false, true) => self.groups[group as usize].last = before.unwrap_or(first),
            (false, false) => {}
        }
    }
}
