//! Times the small kernels between the large ones: norms, choices, trees.
//!
//! `small_time cuda:0` runs on a GPU, `small_time emulator` checks that it runs at all; words after
//! the device select cases by the start of their names. Each kernel runs many times in one graph,
//! each run after the previous one, so that a figure is what the kernel adds to a pass when nothing
//! else runs. Shapes are those of Llama-3.1-8B with its EAGLE-3 head.

use std::{env, error::Error, process::ExitCode};

use kernels::{
    device::{Buffer, Device, DeviceError, Element},
    launch::{
        AcceptInputs, AcceptOutputs, Added, Drafting, Groups, Kernels, Logits, Moves, Outputs, OwnRows, Parts,
        PassRows, Proposals, RmsNorm, Rows, Sequences, TopK, TreeNodes, VerifyRows,
    },
};

const WIDTH: usize = 4096;
const DRAFT_VOCABULARY: usize = 32_000;
const VOCABULARY: usize = 128_256;
const PAGE_SIZE: usize = 16;
const TABLE_WIDTH: usize = 128;
/// Maximum number of rows of logits, and of requests.
const MOST_ROWS: usize = 256;
const MOST_BATCH: usize = 64;
/// Trees: steps, branches, nodes.
const SHAPES: [(usize, usize, usize); 3] = [(3, 1, 4), (5, 8, 32), (8, 10, 60)];

/// Runs of a kernel in a graph, and runs of the graph.
#[derive(Clone, Copy)]
struct Repeats {
    kernels: usize,
    graphs: usize,
}

/// The buffers of all cases. All are zero, except those that are read as numbers.
struct Scene {
    kernels: Kernels,
    repeats: Repeats,
    wanted: Vec<String>,
    /// Float or bfloat16, for anything that is read.
    numbers: Buffer,
    /// For anything that is written.
    written: Buffer,
    /// int32.
    zeros: Buffer,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("small_time: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let name = arguments.next().ok_or("give a device: cuda:N or emulator")?;
    let (device, repeats) = match name.strip_prefix("cuda:") {
        Some(number) => (Device::cuda(number.parse()?)?, Repeats { kernels: 200, graphs: 15 }),
        None => (Device::emulated()?, Repeats { kernels: 1, graphs: 1 }),
    };
    let floats = Kernels::new(device.clone(), Element::F32);
    let numbers = device.allocate(MOST_ROWS * VOCABULARY * 4)?;
    floats.fill_random(numbers.slice(), 8.0, 1)?;
    let scene = Scene {
        kernels: Kernels::new(device.clone(), Element::BF16),
        repeats,
        wanted: arguments.collect(),
        numbers,
        written: device.zeros(64 << 20)?,
        zeros: device.zeros(16 << 20)?,
    };
    println!("{device:?}, microseconds a kernel");
    scene.norms()?;
    scene.choices()?;
    SHAPES.into_iter().try_for_each(|shape| [1, 8].into_iter().try_for_each(|batch| scene.trees(shape, batch)))?;
    Ok(())
}

impl Scene {
    fn norms(&self) -> Result<(), DeviceError> {
        let [out, stream, add] =
            [self.written.range(0..16 << 20), self.written.range(16 << 20..64 << 20), self.zeros.slice()]
                .map(|at| Rows { at, stride: WIDTH });
        for (rows, count) in [(1, 0), (8, 0), (64, 0), (256, 0), (1, 8), (8, 8), (32, 8), (64, 8)] {
            let parts = Added::Parts(Parts { at: self.numbers.slice(), count });
            let norm = RmsNorm {
                out,
                stream,
                add: Some(if count > 0 { parts } else { Added::Rows(add) }),
                weight: self.zeros.range(0..WIDTH * 2),
                keep: None,
                source: None,
                rows,
                width: WIDTH,
                epsilon: 1e-5,
            };
            self.time(&format!("norm, {rows} rows, {count} parts"), || self.kernels.rms_norm(norm))?;
        }
        for rows in [4, 64] {
            let [to, from] = [&self.written, &self.numbers].map(|at| Rows { at: at.slice(), stride: 3 * WIDTH });
            let source = Some(self.zeros.slice());
            self.time(&format!("gather_rows, {rows}"), || {
                self.kernels.gather_rows(to, None, from, source, rows, 3 * WIDTH)
            })?;
        }
        Ok(())
    }

    fn choices(&self) -> Result<(), DeviceError> {
        for (rows, count) in [(1, 1), (8, 1), (1, 8), (8, 8), (64, 8), (80, 10), (256, 8), (8, 64)] {
            let top = TopK {
                ids: self.written.range(0..1 << 20),
                logprobs: self.written.range(1 << 20..2 << 20),
                logits: self.logits(rows, DRAFT_VOCABULARY),
                count,
                token_map: Some(self.zeros.slice()),
            };
            self.time(&format!("top_k, {rows} rows, {count}"), || self.kernels.top_k_rows(top))?;
        }
        for rows in [1, 4, 8, 32, 64, 256] {
            let (chosen, logits) = (self.written.slice(), self.logits(rows, VOCABULARY));
            self.time(&format!("argmax, {rows} rows"), || self.kernels.argmax_rows(chosen, logits))?;
        }
        Ok(())
    }

    fn logits(&self, rows: usize, vocabulary: usize) -> Logits<'_> {
        Logits { at: self.numbers.slice(), stride: vocabulary, rows, vocabulary }
    }

    fn trees(&self, (steps, topk, nodes): (usize, usize, usize), batch: usize) -> Result<(), DeviceError> {
        let what = |kernel: &str| format!("{kernel}, {steps},{topk},{nodes} × {batch}");
        let (words, most) = (1 << 16, steps + 1);
        let array = |at: usize| self.written.range(at * words * 4..(at + 1) * words * 4);
        let zeros = self.zeros.slice();
        let own = OwnRows { cache_rows: array(17), count: array(18), mask: array(19), own_stride: most };
        let drafting = Drafting {
            batch,
            steps,
            topk,
            vocabulary: DRAFT_VOCABULARY,
            scratch_base: 0,
            batch_slot: zeros,
            pool_token: array(0),
            pool_score: array(1),
            pool_parent: array(2),
            beam_place: array(3),
            own: Some(own),
        };
        let proposals = Proposals { ids: zeros, logprobs: zeros };
        let sequences = Sequences {
            slots: MOST_BATCH + 1,
            length: zeros,
            root: zeros,
            page_table: zeros,
            table_width: TABLE_WIDTH,
            page_size: PAGE_SIZE,
        };
        let rows = PassRows {
            token: array(4),
            position: array(5),
            write: array(6),
            slot: array(7),
            prefix: array(8),
            own_count: array(9),
            own: array(10),
            own_stride: most,
        };
        let tree = TreeNodes { nodes, token: array(11), parent: array(12), depth: array(13), score: array(13) };
        let outputs = Outputs { at: array(21), places: 1, place: array(23) };
        let verify = VerifyRows { sample_position: array(15), group_prefix: Some(array(16)), outputs: Some(outputs) };
        let source = array(20);
        let kernels = &self.kernels;
        self.time(&what("draft_begin"), || kernels.draft_begin(drafting, proposals, sequences, rows, source))?;
        for step in 1..steps - 1 {
            kernels.draft_expand(drafting, step, proposals, sequences, rows, source)?;
        }
        let last = steps - 2;
        self.time(&what("draft_expand"), || kernels.draft_expand(drafting, last, proposals, sequences, rows, source))?;
        self.time(&what("gather_own of beams"), || {
            kernels.gather_own(own, rows.own_count, rows.own, Groups::Even(topk), batch * topk)
        })?;
        self.time(&what("draft_finish"), || kernels.draft_finish(drafting, proposals, sequences, tree, rows, verify))?;
        self.time(&what("gather_own of nodes"), || {
            kernels.gather_own(own, rows.own_count, rows.own, Groups::Even(nodes), batch * nodes)
        })?;
        let ways = AcceptInputs {
            batch,
            most,
            batch_slot: zeros,
            chosen: zeros,
            tree,
            simulate: None,
            seed: zeros,
            played: None,
        };
        let acceptance = AcceptOutputs {
            node: array(22),
            outputs,
            moves: Moves { from: array(24), to: array(25) },
            rows,
            row_source: source,
            last_row: array(26),
            group_prefix: Some(array(27)),
            group_rows: Some(array(28)),
            texts: None,
            verified: kernels::launch::VerifiedNodes::All,
        };
        let sequences = Sequences { length: array(29), root: array(30), ..sequences };
        self.time(&what("accept_drafts"), || kernels.accept(ways, acceptance, sequences))
    }

    /// Prints the median microseconds of a kernel that runs after itself.
    fn time(&self, what: &str, launch: impl Fn() -> Result<(), DeviceError>) -> Result<(), DeviceError> {
        let device = self.kernels.device();
        // Kernels are compiled and loaded before the recording.
        launch()?;
        if !self.wanted.is_empty() && !self.wanted.iter().any(|wanted| what.starts_with(wanted.as_str())) {
            return Ok(());
        }
        let Repeats { kernels, graphs } = self.repeats;
        let graph = device.capture(|| (0..kernels).try_for_each(|_| launch()))?;
        device.run(&graph)?;
        let mut times = Vec::with_capacity(graphs);
        for _ in 0..graphs {
            let begin = device.event()?;
            device.run(&graph)?;
            let end = device.event()?;
            end.wait()?;
            times.push(end.since(&begin)?.as_secs_f64() * 1e6 / kernels as f64);
        }
        times.sort_by(f64::total_cmp);
        println!("{what:<32} {:>8.2}", times[times.len() / 2]);
        Ok(())
    }
}
