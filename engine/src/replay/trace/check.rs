//! Whether a trace that was read from a file can be what a draft proposed.

use schemas::tree::TreeShape;

use super::{Nodes, PositionTrace, ROOT, TextTrace};

/// What sums of rounded numbers may exceed their limit by.
const ROUNDING: f32 = 1e-3;

impl PositionTrace {
    /// Checks values that were read from a file.
    ///
    /// # Errors
    /// What is wrong, with the number of the text and of the position.
    pub fn check(&self) -> Result<(), String> {
        let Self { limit, largest, .. } = self;
        let TreeShape { num_steps, topk, num_draft_tokens, .. } = *limit;
        let within = 1..=TreeShape::LARGEST;
        if ![num_steps, topk, num_draft_tokens].iter().all(|number| within.contains(number)) {
            return Err(format!("limit {limit}: expected numbers of 1 to {}", TreeShape::LARGEST));
        }
        let beyond = |shape: &&TreeShape| {
            let deep = shape.is_off() || shape.num_steps > num_steps;
            deep || shape.topk != topk || !(2..=num_draft_tokens).contains(&shape.num_draft_tokens)
        };
        if let Some(shape) = largest.iter().find(beyond) {
            return Err(format!("largest: the tree {shape} is not within the limit {limit}"));
        }
        let check = |(at, text): (usize, &TextTrace)| text.check(*limit).map_err(|wrong| format!("text {at}: {wrong}"));
        self.texts.iter().enumerate().try_for_each(check)
    }
}

impl TextTrace {
    fn check(&self, limit: TreeShape) -> Result<(), String> {
        let Self { prompt_tokens, output_tokens, positions, .. } = self;
        if *prompt_tokens == 0 || positions.len() != output_tokens.saturating_sub(1) {
            let count = positions.len();
            return Err(format!(
                "{count} positions of {output_tokens} tokens after a prompt of {prompt_tokens}: expected a prompt, and one \
                 position less than tokens"
            ));
        }
        let check =
            |(at, nodes): (usize, &Nodes)| nodes.check(limit).map_err(|wrong| format!("position {at}: {wrong}"));
        positions.iter().enumerate().try_for_each(check)
    }
}

impl Nodes {
    /// Checks the lists, each node, and the nodes on the text.
    fn check(&self, limit: TreeShape) -> Result<(), String> {
        let count = self.len();
        let lists = [self.parent.len(), self.rank.len(), self.depth.len(), self.chance.len()];
        if count >= usize::from(ROOT) || lists.iter().any(|length| *length != count) {
            return Err(format!("lists of {count} and {lists:?} nodes: expected equal lengths below {ROOT}"));
        }
        let confident = self.confidence.len();
        if confident > limit.num_steps || !self.confidence.iter().all(|log_odds| log_odds.is_finite()) {
            return Err(format!(
                "confidence: {confident} log-odds, expected numbers, at most one per depth of {limit}"
            ));
        }
        (0..count).try_for_each(|at| self.check_node(at, limit).map_err(|wrong| format!("node {at}: {wrong}")))?;
        let mut parent = ROOT;
        for at in &self.on_text {
            if self.parent.get(usize::from(*at)) != Some(&parent) {
                return Err(format!("on_text: node {at} is not a child of the node before"));
            }
            parent = *at;
        }
        // After a node on the text, the target takes one of its children or another token.
        let above = std::iter::once(ROOT).chain(self.on_text.iter().copied());
        for parent in above {
            let children = (0..count).filter(|at| self.parent[*at] == parent);
            let sum: f32 = children.filter_map(|at| self.chance[at]).sum();
            if sum > 1.0 + ROUNDING {
                return Err(format!("chance: {sum} in sum after a node, expected at most 1"));
            }
        }
        Ok(())
    }

    fn check_node(&self, at: usize, limit: TreeShape) -> Result<(), String> {
        let (parent, depth, rank) = (self.parent[at], self.depth[at], self.rank[at]);
        let is_earlier = parent == ROOT || usize::from(parent) < at;
        if !is_earlier {
            return Err(format!("its parent {parent} does not come before it"));
        }
        let (depth_above, score_above) = match parent {
            ROOT => (0, 0.0),
            parent => (self.depth[usize::from(parent)], self.score[usize::from(parent)]),
        };
        if depth != depth_above + 1 || usize::from(depth) > limit.num_steps {
            return Err(format!("depth {depth}, after a parent of depth {depth_above} within {limit}"));
        }
        if usize::from(rank) >= limit.topk {
            return Err(format!("rank {rank}, of {} children at most", limit.topk));
        }
        let score = self.score[at];
        if score.is_nan() || score > score_above + ROUNDING {
            return Err(format!("score {score}: expected a log-probability of at most its parent's, {score_above}"));
        }
        match self.chance[at] {
            Some(chance) if !(0.0..=1.0 + ROUNDING).contains(&chance) => {
                Err(format!("chance {chance}: expected a probability of 0 to 1"))
            }
            Some(_) if parent != ROOT && !self.on_text.contains(&parent) => {
                Err("it has a chance, but the text does not lead to it".into())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::trace::FORMAT;

    /// One position: a chain of two drafts on the text, and a sibling of the first.
    fn nodes() -> Nodes {
        Nodes {
            score: vec![-0.1, -2.0, -0.4],
            parent: vec![ROOT, ROOT, 0],
            rank: vec![0, 1, 0],
            depth: vec![1, 1, 2],
            chance: vec![Some(0.75), Some(0.25), Some(1.0)],
            on_text: vec![0, 2],
            confidence: vec![1.5, -0.5],
        }
    }

    fn trace(nodes: Nodes) -> PositionTrace {
        let limit = TreeShape::whole_tree(2, 2, 4);
        let text = TextTrace { prompt_tokens: 3, output_tokens: 2, sampled: true, positions: vec![nodes] };
        PositionTrace { format: FORMAT, source: "EAGLE3".into(), limit, largest: vec![limit], texts: vec![text] }
    }

    #[test]
    fn each_tampered_value_is_refused_with_its_place() {
        assert_eq!(trace(nodes()).check(), Ok(()));
        let check = |change: &dyn Fn(&mut Nodes), words: &str| {
            let mut changed = nodes();
            change(&mut changed);
            let found = trace(changed).check().expect_err(words);
            assert!(found.starts_with("text 0: position 0: ") && found.contains(words), "{found}");
        };
        check(&|nodes| nodes.depth[2] = 1, "node 2: depth 1");
        check(&|nodes| nodes.depth = vec![3, 3, 4], "node 0: depth 3");
        check(&|nodes| nodes.rank[1] = 2, "node 1: rank 2");
        check(&|nodes| nodes.parent[2] = 2, "node 2: its parent 2");
        check(&|nodes| nodes.parent[0] = 7, "node 0: its parent 7");
        check(&|nodes| nodes.score[2] = 0.5, "node 2: score 0.5");
        check(&|nodes| nodes.score[0] = f32::NAN, "score NaN");
        check(&|nodes| nodes.chance[1] = Some(1.5), "chance 1.5");
        check(&|nodes| nodes.chance[1] = Some(-0.5), "chance -0.5");
        check(&|nodes| nodes.chance[1] = Some(0.5), "chance: 1.25 in sum");
        check(&|nodes| nodes.on_text = vec![1], "node 2: it has a chance");
        check(&|nodes| nodes.on_text = vec![0, 1], "on_text: node 1");
        check(&|nodes| nodes.on_text = vec![0, 9], "on_text: node 9");
        check(&|nodes| nodes.score.push(-9.0), "lists of 4");
        check(&|nodes| nodes.confidence.push(0.0), "confidence: 3 log-odds");
        check(&|nodes| nodes.confidence[0] = f32::INFINITY, "confidence: 2 log-odds");
    }

    #[test]
    fn limits_and_lengths_of_a_tampered_trace_are_refused() {
        let check = |change: &dyn Fn(&mut PositionTrace), words: &str| {
            let mut changed = trace(nodes());
            change(&mut changed);
            let found = changed.check().expect_err(words);
            assert!(found.contains(words), "{found}");
        };
        check(&|trace| trace.limit.num_steps = usize::MAX, "limit");
        check(&|trace| trace.largest[0].num_draft_tokens = 5, "largest");
        check(&|trace| trace.largest.push(TreeShape::OFF), "largest");
        check(&|trace| trace.texts[0].output_tokens = 5, "1 positions of 5 tokens");
        check(&|trace| trace.texts[0].prompt_tokens = 0, "after a prompt of 0");
    }
}
