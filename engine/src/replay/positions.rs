//! Makes traces by position.

use std::ops::ControlFlow;

use schemas::tree::{NodeSource, TreeShape};

use super::{
    ReplayProgress, ReplayReport, ReplayText, check,
    group::TextGroup,
    trace::{FORMAT, PositionTrace},
};
use crate::{backend::Replay, error::EngineError};

/// The largest tree of each depth up to a limit, of the limit's family.
///
/// # Errors
/// When the source cannot fill a tree of the limit.
fn largest(limit: TreeShape, nodes: NodeSource) -> Result<Vec<TreeShape>, EngineError> {
    nodes.check(limit).map_err(|error| {
        EngineError::Configuration(format!("the tree shape {limit} cannot be the limit of a trace: {error}"))
    })?;
    if limit.is_off() {
        return Err(EngineError::Configuration("a trace needs a limit with at least one draft step".into()));
    }
    let of_depth = |steps: usize| {
        let most = if limit.topk == 1 { steps + 1 } else { nodes.most_nodes(steps, limit.topk) };
        nodes.shape(steps, limit.topk, limit.num_draft_tokens.min(most)).ok()
    };
    let same = |shape: &TreeShape| nodes.family(*shape) == nodes.family(limit);
    Ok((1..=limit.num_steps).filter_map(of_depth).filter(same).collect())
}

/// Checks that a source can fill trees of these limits.
///
/// # Errors
/// When there is no limit, or it cannot.
pub(crate) fn check_limits(limits: &[TreeShape], nodes: NodeSource) -> Result<(), EngineError> {
    if limits.is_empty() {
        return Err(EngineError::Configuration("a trace by position needs at least one limit".into()));
    }
    limits.iter().try_for_each(|limit| largest(*limit, nodes).map(|_| ()))
}

/// Implements [`Engine::trace_positions`](crate::Engine::trace_positions).
pub(crate) fn run(
    backend: &mut dyn Replay,
    source: &str,
    texts: &[ReplayText],
    limits: &[TreeShape],
    progress: &mut dyn FnMut(ReplayProgress) -> ControlFlow<()>,
) -> Result<Vec<PositionTrace>, EngineError> {
    let nodes = backend.cost().nodes;
    let lists = limits.iter().map(|limit| largest(*limit, nodes)).collect::<Result<Vec<_>, _>>()?;
    texts.iter().enumerate().try_for_each(|(at, text)| check(backend, at, text))?;
    let positions: usize = texts.iter().map(ReplayText::round_tokens).sum();
    let mut reported = ReplayReport { progress, done: 0, total: positions * limits.len() };
    let record = |(limit, largest): (&TreeShape, &Vec<TreeShape>)| PositionTrace {
        format: FORMAT,
        source: source.to_owned(),
        limit: *limit,
        largest: largest.clone(),
        texts: Vec::new(),
    };
    let mut traces: Vec<PositionTrace> = limits.iter().zip(&lists).map(record).collect();
    let mut first = 0;
    while first < texts.len() {
        let mut group = TextGroup::open(backend, texts, first, limits, None)?;
        let found = group.positions(&lists, &mut reported);
        let closed = group.close();
        let (found, goes_on) = found?;
        closed?;
        first += found.first().map_or(texts.len(), Vec::len);
        traces.iter_mut().zip(found).for_each(|(trace, texts)| trace.texts.extend(texts));
        if goes_on.is_break() {
            break;
        }
    }
    Ok(traces)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{
        Engine, EngineOptions, Request, SamplingParams, ShapeAcceptance, ShapePolicy, StopConditions,
        options::DeviceChoice,
    };

    fn texts(engine: &mut Engine) -> Vec<ReplayText> {
        let request = |number: u32| Request {
            input_ids: (0..6 + number).map(|at| 20 + (at * 37 + number * 11) % 900).collect(),
            sampling: SamplingParams {
                temperature: if number.is_multiple_of(2) { 0.0 } else { 0.8 },
                ..SamplingParams::default()
            },
            stop: StopConditions { max_new_tokens: Some(24), ignore_eos: true, ..StopConditions::default() },
        };
        let requests: Vec<Request> = (0..4).map(request).collect();
        let completions = engine.run(requests.clone()).expect("they run");
        requests.iter().zip(&completions).map(|(request, completion)| ReplayText::new(request, completion)).collect()
    }

    fn engine() -> Engine {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny");
        Engine::load(EngineOptions {
            model_path: models.join("target"),
            draft_model_path: Some(models.join("eagle3")),
            policy: ShapePolicy::fixed(TreeShape::OFF),
            context_length: Some(128),
            device: DeviceChoice::Cpu,
            ..EngineOptions::default()
        })
        .expect("the demo pair loads")
    }

    #[test]
    fn a_cancelled_trace_has_the_texts_that_are_finished_and_frees_the_slots() {
        let mut engine = engine();
        let four = texts(&mut engine);
        // 16 texts of 23 positions fill more than one step of expansion.
        let texts: Vec<ReplayText> = (0..4).flat_map(|_| four.clone()).collect();
        let limits: Vec<TreeShape> = ["2,1,3", "2,2,4"].iter().map(|text| text.parse().expect("a shape")).collect();
        let mut traced = |cancel_at: usize| {
            let stop = |progress: ReplayProgress| match progress.walked {
                walked if walked > 0 && walked >= cancel_at => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            };
            engine.trace_positions(&texts, &limits, &mut { stop }).expect("it ends")
        };
        let whole = traced(usize::MAX);
        assert!(whole.iter().all(|trace| trace.texts.len() == texts.len()));
        let part = traced(1);
        let finished = part[0].texts.len();
        assert!((1..texts.len()).contains(&finished), "{finished}");
        for (part, whole) in part.iter().zip(&whole) {
            assert_eq!(part.texts, whole.texts[..finished]);
            assert_eq!(part.check(), Ok(()));
        }
        let none = engine.trace_positions(&texts, &limits, &mut |_| ControlFlow::Break(())).expect("it ends");
        assert!(none.len() == 2 && none.iter().all(|trace| trace.texts.is_empty()));
    }

    #[test]
    fn every_shape_within_a_trace_accepts_what_a_replay_counts() {
        let mut engine = engine();
        let texts = texts(&mut engine);
        let limits: Vec<TreeShape> = ["5,1,6", "4,3,12"].iter().map(|text| text.parse().expect("a shape")).collect();
        let traces = engine.trace_positions(&texts, &limits, &mut |_| ControlFlow::Continue(()));
        let traces = traces.expect("they are traced");
        let shapes = ["1,1,2", "3,1,4", "5,1,6", "1,3,4", "2,3,4", "3,3,9", "4,3,12"];
        let shapes: Vec<TreeShape> = shapes.iter().map(|text| text.parse().expect("a shape")).collect();
        let replayed = engine.replay(&texts, &shapes, &mut |_| ControlFlow::Continue(()));
        let replayed = replayed.expect("they are replayed").expect("no one cancelled");
        let mut accepted = 0;
        for (at, shape) in shapes.iter().enumerate() {
            let trace = traces.iter().find(|trace| trace.contains(*shape)).expect("a trace contains it");
            let found = trace.acceptance(*shape).expect("it is contained");
            for (found, text) in found.iter().zip(&replayed) {
                let expected = &text[at];
                accepted += expected.accepted_drafts();
                let near = |(one, other): (f64, f64)| (one - other).abs() < 1e-4;
                assert_eq!(found.expected_drafts.is_some(), expected.expected_drafts.is_some());
                assert!(found.expected_drafts.zip(expected.expected_drafts).is_none_or(near), "{found:?} {expected:?}");
                let exact = |one: &ShapeAcceptance| ShapeAcceptance { expected_drafts: None, ..one.clone() };
                assert_eq!(exact(found), exact(expected), "{shape}");
            }
        }
        assert!(accepted > 0, "a test of nothing");
        assert!(!traces.iter().any(|trace| trace.contains(TreeShape::chain(6))));
        // What was written is read.
        let text = serde_json::to_string(&traces).expect("it is written");
        assert!(text.len() > 1000 && traces.iter().all(|trace| trace.check() == Ok(())));
        assert_eq!(serde_json::from_str::<Vec<PositionTrace>>(&text).expect("it is read"), traces);
    }
}
