//! `spectune bench` of shapes at batch sizes, whose repeats take turns.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use engine::{
    Engine, ShapePolicy, Simulated,
    bench::{BenchPlan, BenchRuns, RandomBatch},
};
use tuner::forecast::drafts::Drafts;

use super::{
    Arguments, BenchShape, HEADER, SIMULATED, notes, row, shape_name,
    turns::{self, BenchTurn, Turned},
};
use crate::{engine_setup, exit::Exit, progress, terminal};

/// A shape at a batch size, with its runs so far.
struct BenchPoint {
    /// Place of the shape among those that are measured.
    trial: usize,
    load: RandomBatch,
    runs: BenchRuns,
}

/// The points to measure: every shape at every batch size.
fn points(arguments: &Arguments, trials: &[BenchShape]) -> Vec<BenchPoint> {
    let (Some(input_len), Some(output_len)) = (arguments.input_len, arguments.output_len) else { return Vec::new() };
    let load = |batch_size| RandomBatch { batch_size, input_len, output_len, seed: arguments.seed };
    let of = |trial| {
        let sizes = arguments.batch_size.iter();
        sizes.map(move |size| BenchPoint { trial, load: load(*size), runs: BenchRuns::default() })
    };
    (0..trials.len()).flat_map(of).collect()
}

/// Measures every shape at every batch size, and prints a line for each.
///
/// # Errors
/// When a load does not fit, the acceptance of a shape is unknown, or the device fails; the lines
/// of what has run by then are printed.
pub fn run(
    engine: &mut Engine,
    arguments: &Arguments,
    trials: &[BenchShape],
    drafts: Option<&Drafts>,
    startup: Duration,
) -> anyhow::Result<Exit> {
    // In the same run as the rounds, since clocks and neighbours change.
    let bandwidth = engine.measure_bandwidth()?;
    if drafts.is_some() {
        terminal::note(SIMULATED);
    }
    if !arguments.json {
        terminal::print(HEADER)?;
    }
    let simulated = |one: &BenchShape| -> anyhow::Result<Option<Simulated>> {
        let played = drafts.map(|drafts| drafts.played(&[one.shape])).transpose()?.flatten();
        Ok(played.map(|played| Simulated::Played(Arc::new(played))).or(one.simulate.map(Simulated::Length)))
    };
    let mut shapes = Shapes {
        arguments,
        trials,
        simulated: trials.iter().map(simulated).collect::<anyhow::Result<_>>()?,
        points: points(arguments, trials),
        changes: vec![None; trials.len()],
        current: None,
        bandwidth,
        startup,
        engine,
    };
    let exit = turns::take(&mut shapes, arguments.repeats())?;
    if !arguments.json {
        terminal::note(&notes(shapes.engine, startup.as_secs_f64(), bandwidth));
    }
    Ok(exit)
}

/// Shapes that are measured on an engine.
struct Shapes<'a> {
    engine: &'a mut Engine,
    arguments: &'a Arguments,
    trials: &'a [BenchShape],
    /// What rounds of each shape accept.
    simulated: Vec<Option<Simulated>>,
    points: Vec<BenchPoint>,
    /// Times of the first change to each shape: graphs are captured there, which a table of shapes
    /// pays for at each start.
    changes: Vec<Option<Duration>>,
    /// The shape that the engine runs.
    current: Option<usize>,
    bandwidth: f64,
    startup: Duration,
}

impl Shapes<'_> {
    /// Makes the engine run a point's shape. Batch sizes of a shape follow each other, and need no
    /// change.
    fn change(&mut self, at: usize) -> anyhow::Result<()> {
        let trial = self.points[at].trial;
        if self.current == Some(trial) {
            return Ok(());
        }
        self.current = None;
        self.engine.simulate_acceptance(self.simulated[trial].clone())?;
        let begin = Instant::now();
        engine_setup::set_policy(self.engine, ShapePolicy::fixed(self.trials[trial].shape))?;
        self.changes[trial].get_or_insert(begin.elapsed());
        self.current = Some(trial);
        Ok(())
    }
}

impl Turned for Shapes<'_> {
    fn count(&self) -> usize {
        self.points.len()
    }

    fn ran(&self, at: usize) -> usize {
        self.points[at].runs.count()
    }

    fn run(&mut self, at: usize, turn: &BenchTurn) -> anyhow::Result<()> {
        self.change(at)?;
        let BenchPoint { trial, load, runs } = &mut self.points[at];
        let shape = self.trials[*trial].shape;
        let what = format!("measuring {} at batch {}{}", shape_name(shape), load.batch_size, turn.words);
        Ok(progress::waiting(&what, |_| runs.add(self.engine, load, turn.repeats))?)
    }

    fn print(&mut self, at: usize) -> anyhow::Result<()> {
        // Floors and settings are those of the engine as it is.
        self.change(at)?;
        let BenchPoint { trial, load, runs } = &self.points[at];
        let plan = BenchPlan {
            load: *load,
            repeats: self.arguments.repeats(),
            bandwidth: self.bandwidth,
            startup: self.startup,
            shape_change: self.changes[*trial].unwrap_or_default(),
        };
        let figures = runs.figures(self.engine, &plan)?;
        let line = match self.arguments.json {
            true => serde_json::to_string(&figures).context("figures as JSON")?,
            false => row(&figures),
        };
        terminal::print(&(line + "\n"))
    }
}
