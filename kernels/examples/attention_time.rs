//! Times rotation and attention in the layers of a pass that verifies trees.
//!
//! `attention_time cuda:0` runs on a GPU, `attention_time emulator` checks with tiny sizes that it
//! runs at all; numbers after the device select cases, `context=700` sets the number of positions
//! (default: 570), `head_dim=64` the head size, `kv=fp8_e4m3` a cache in FP8. Shapes are those of
//! Llama-3.1-8B, or with `head_dim=64` those of Llama-3.2-1B. Each layer has a separate cache, and
//! the L2 cache is overwritten before each measurement, so that keys come from memory. There is no
//! linear layer in between, so attention may read early while that of the previous layer still
//! runs: a lower bound of what it adds to a pass.

use std::{env, error::Error, process::ExitCode};

use kernels::{
    checks::Numbers,
    device::{Buffer, Device, DeviceError, Element},
    launch::{Ahead, Attention, Groups, Kernels, OwnRows, RotaryRows, Rotation, Rows, Sees, VisibleRows},
    reference::CacheScales,
};

const HEADS: usize = 32;
const KV_HEADS: usize = 8;
const PAGE_SIZE: usize = 16;
const MAX_SPLITS: usize = 16;

/// Requests with one context length that verify trees of one size.
#[derive(Clone, Copy)]
struct Case {
    requests: usize,
    /// Rows per request; 1 is a round without speculation.
    nodes: usize,
    /// Depth of the deepest node.
    steps: usize,
    /// Beams per step: 1 for a chain.
    topk: usize,
}

const CASES: [Case; 17] = [
    Case { requests: 1, nodes: 1, steps: 0, topk: 1 },
    Case { requests: 8, nodes: 1, steps: 0, topk: 1 },
    Case { requests: 8, nodes: 4, steps: 3, topk: 1 },
    Case { requests: 1, nodes: 32, steps: 5, topk: 8 },
    Case { requests: 8, nodes: 32, steps: 5, topk: 8 },
    Case { requests: 64, nodes: 1, steps: 0, topk: 1 },
    Case { requests: 64, nodes: 4, steps: 3, topk: 1 },
    Case { requests: 32, nodes: 32, steps: 5, topk: 8 },
    Case { requests: 2, nodes: 4, steps: 3, topk: 1 },
    Case { requests: 4, nodes: 4, steps: 3, topk: 1 },
    Case { requests: 1, nodes: 8, steps: 7, topk: 1 },
    Case { requests: 8, nodes: 8, steps: 7, topk: 1 },
    Case { requests: 1, nodes: 60, steps: 8, topk: 10 },
    Case { requests: 8, nodes: 60, steps: 8, topk: 10 },
    Case { requests: 32, nodes: 1, steps: 0, topk: 1 },
    Case { requests: 32, nodes: 4, steps: 3, topk: 1 },
    Case { requests: 1, nodes: 8, steps: 2, topk: 8 },
];

/// The sizes of a measurement.
#[derive(Clone, Copy)]
struct Sizes {
    context: usize,
    /// Elements of a head.
    head_dim: usize,
    fp8: Option<CacheScales>,
    layers: usize,
    replays: usize,
    /// Bytes that are overwritten before each replay.
    flushed: usize,
}

/// Rows of a pass, and caches for its layers.
struct Scene {
    head_dim: usize,
    fp8: Option<CacheScales>,
    rows: usize,
    nodes: usize,
    table_width: usize,
    own_stride: usize,
    cache_rows: usize,
    caches: Buffer,
    qkv: Buffer,
    turns: Buffer,
    out: Buffer,
    partial: Buffer,
    counters: Buffer,
    page_table: Buffer,
    position: Buffer,
    write: Buffer,
    slot: Buffer,
    prefix: Buffer,
    own_count: Buffer,
    own: Buffer,
    own_rows: Buffer,
    group_own: Buffer,
    own_mask: Buffer,
    flushed: Buffer,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("attention_time: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let name = arguments.next().ok_or("give a device: cuda:N or emulator")?;
    let (mut wanted, mut context, mut head_dim, mut fp8) = (Vec::new(), None, 128, None);
    for argument in arguments {
        match argument.split_once('=') {
            Some(("context", positions)) => context = Some(positions.parse()?),
            Some(("head_dim", elements)) => head_dim = elements.parse()?,
            Some(("kv", "fp8_e4m3")) => fp8 = Some(CacheScales { keys: 0.01, values: 0.01 }),
            _ => wanted.push(argument.parse::<usize>()?),
        }
    }
    let (device, mut sizes) = match name.strip_prefix("cuda:") {
        Some(number) => {
            let sizes = Sizes { context: 570, head_dim, fp8, layers: 32, replays: 30, flushed: 256 << 20 };
            (Device::cuda(number.parse()?)?, sizes)
        }
        None => (Device::emulated()?, Sizes { context: 70, head_dim, fp8, layers: 1, replays: 1, flushed: 4 }),
    };
    sizes.context = context.unwrap_or(sizes.context);
    let cache = if fp8.is_some() { "FP8" } else { "bfloat16" };
    println!("{:?}, context {}, a cache in {cache}, a layer", device, sizes.context);
    println!("{:>10} {:>8} {:>16}", "requests", "rows", "microseconds");
    let chosen = (0..CASES.len()).filter(|at| wanted.is_empty() || wanted.contains(at));
    for case in chosen.map(|at| CASES[at]) {
        let kernels = Kernels::new(device.clone(), Element::BF16);
        let scene = Scene::new(&kernels, case, sizes)?;
        scene.gather(&kernels)?;
        let layer = scene.time(&kernels, sizes, |layer| scene.attend(&kernels, layer))?;
        println!("{:>10} {:>8} {layer:>16.2}", case.requests, case.nodes);
    }
    Ok(())
}

impl Scene {
    fn new(kernels: &Kernels, case: Case, sizes: Sizes) -> Result<Self, DeviceError> {
        let Case { requests, nodes, steps, topk } = case;
        let head_dim = sizes.head_dim;
        let device = kernels.device();
        let mut numbers = Numbers::new((requests * 1000 + nodes) as u64);
        let table_width = (sizes.context + nodes).div_ceil(PAGE_SIZE);
        let mut pages: Vec<i32> = (0..(requests * table_width) as i32).collect();
        for at in (1..pages.len()).rev() {
            pages.swap(at, numbers.below(at + 1));
        }
        let cache_rows = pages.len() * PAGE_SIZE;
        let cache_row = |request: usize, position: usize| {
            pages[request * table_width + position / PAGE_SIZE] * PAGE_SIZE as i32 + (position % PAGE_SIZE) as i32
        };
        let rows = requests * nodes;
        let own_stride = steps + 1;
        let mut own = vec![0; rows * own_stride];
        let (mut position, mut write, mut slot) = (Vec::new(), Vec::new(), Vec::new());
        let (mut prefix, mut own_count) = (Vec::new(), Vec::new());
        for request in 0..requests {
            let ways = ways(&mut numbers, nodes, steps, topk);
            for (node, way) in ways.iter().enumerate() {
                position.push((sizes.context + way.len() - 1) as i32);
                write.push(cache_row(request, sizes.context + node));
                slot.push(request as i32);
                // A row without speculation is causal; those of a tree see their paths.
                let causal = nodes == 1;
                prefix.push(sizes.context as i32 + i32::from(causal));
                own_count.push(if causal { 0 } else { way.len() as i32 });
                let row = request * nodes + node;
                for (to, node) in own[row * own_stride..].iter_mut().zip(way) {
                    *to = cache_row(request, sizes.context + node);
                }
            }
        }
        let element = kernels.element().bytes();
        let width = (HEADS + 2 * KV_HEADS) * head_dim;
        let cached = if sizes.fp8.is_some() { 1 } else { element };
        let caches = device.allocate(sizes.layers * 2 * cache_rows * KV_HEADS * head_dim * cached)?;
        kernels.fill_random(caches.slice(), 1.0, 1)?;
        let qkv = device.allocate(rows * width * element)?;
        kernels.fill_random(qkv.slice(), 1.0, 2)?;
        let turns: Vec<f32> =
            (0..(sizes.context + nodes) * head_dim / 2).flat_map(|at| [(at as f32).cos(), (at as f32).sin()]).collect();
        Ok(Self {
            head_dim,
            fp8: sizes.fp8,
            rows,
            nodes,
            table_width,
            own_stride,
            cache_rows,
            caches,
            qkv,
            turns: device.upload(&turns)?,
            out: device.allocate(rows * HEADS * head_dim * element)?,
            partial: device.allocate(Kernels::attention_workspace(rows, HEADS, head_dim, MAX_SPLITS))?,
            counters: device.zeros(rows * HEADS * 4)?,
            page_table: device.upload(&pages)?,
            position: device.upload(&position)?,
            write: device.upload(&write)?,
            slot: device.upload(&slot)?,
            prefix: device.upload(&prefix)?,
            own_count: device.upload(&own_count)?,
            own: device.upload(&own)?,
            own_rows: device.allocate(own.len() * 4)?,
            group_own: device.allocate(requests * 4)?,
            own_mask: device.allocate(rows * Kernels::own_mask_words(nodes, own_stride) * 4)?,
            flushed: device.allocate(sizes.flushed)?,
        })
    }

    /// Bytes of the keys, or the values, of a layer.
    fn plane(&self) -> usize {
        self.caches.bytes() / self.layers() / 2
    }

    fn layers(&self) -> usize {
        let element = if self.fp8.is_some() { 1 } else { Element::BF16.bytes() };
        self.caches.bytes() / (2 * self.cache_rows * KV_HEADS * self.head_dim * element)
    }

    fn attend(&self, kernels: &Kernels, layer: usize) -> Result<(), DeviceError> {
        let plane = self.plane();
        let attention = Attention {
            out: self.out.slice(),
            query: Rows { at: self.qkv.slice(), stride: (HEADS + 2 * KV_HEADS) * self.head_dim },
            keys: self.caches.range(2 * layer * plane..(2 * layer + 1) * plane),
            values: self.caches.range((2 * layer + 1) * plane..(2 * layer + 2) * plane),
            visible: VisibleRows {
                page_table: self.page_table.slice(),
                table_width: self.table_width,
                page_size: PAGE_SIZE,
                slot: self.slot.slice(),
                prefix: self.prefix.slice(),
                own_count: self.own_count.slice(),
                own: self.own.slice(),
                own_stride: self.own_stride,
            },
            rows: self.rows,
            together: self.nodes,
            heads: HEADS,
            kv_heads: KV_HEADS,
            head_dim: self.head_dim,
            partial: self.partial.slice(),
            counters: self.counters.slice(),
            max_splits: MAX_SPLITS,
            sinks: None,
            window: None,
            fp8: self.fp8,
        };
        let rotation = Rotation {
            qkv: self.qkv.slice(),
            parts: None,
            rotary: RotaryRows {
                table: self.turns.slice(),
                positions: self.turns.bytes() / (self.head_dim / 2 * 8),
                position: self.position.slice(),
            },
            write: self.write.slice(),
            keys: attention.keys,
            values: attention.values,
            fp8: self.fp8,
            norms: None,
            rows: self.rows,
            heads: HEADS,
            kv_heads: KV_HEADS,
            head_dim: self.head_dim,
        };
        let ahead = if layer == 0 { Ahead::Layout } else { Ahead::Layer };
        kernels.rotate_and_attend(rotation, attention, Groups::Even(self.nodes), self.sees(), ahead)
    }

    /// Gathers the own rows once, as a pass does.
    fn gather(&self, kernels: &Kernels) -> Result<(), DeviceError> {
        match self.sees() {
            Sees::Positions => Ok(()),
            Sees::Own(own) => {
                let (count, list) = (self.own_count.slice(), self.own.slice());
                kernels.gather_own(own, count, list, Groups::Even(self.nodes), self.rows)
            }
        }
    }

    fn sees(&self) -> Sees<'_> {
        match self.nodes {
            1 => Sees::Positions,
            _ => Sees::Own(OwnRows {
                cache_rows: self.own_rows.slice(),
                count: self.group_own.slice(),
                mask: self.own_mask.slice(),
                own_stride: self.own_stride,
            }),
        }
    }

    /// Median microseconds per layer in a graph of all layers.
    fn time(
        &self,
        kernels: &Kernels,
        sizes: Sizes,
        layer: impl Fn(usize) -> Result<(), DeviceError>,
    ) -> Result<f64, DeviceError> {
        let device = kernels.device();
        // Kernels are compiled and loaded before the recording.
        layer(0)?;
        let graph = device.capture(|| (0..sizes.layers).try_for_each(&layer))?;
        device.run(&graph)?;
        let mut times = Vec::with_capacity(sizes.replays);
        for _ in 0..sizes.replays {
            device.fill(self.flushed.slice(), 0)?;
            let begin = device.event()?;
            device.run(&graph)?;
            let end = device.event()?;
            end.wait()?;
            times.push(end.since(&begin)?.as_secs_f64() * 1e6 / sizes.layers as f64);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }
}

/// The path from the root to each node of a tree, the node itself last: a chain, or nodes below
/// random ones of the best `topk` of the previous depth.
fn ways(numbers: &mut Numbers, nodes: usize, steps: usize, topk: usize) -> Vec<Vec<usize>> {
    let mut ways: Vec<Vec<usize>> = vec![vec![0]];
    for node in 1..nodes {
        let open: Vec<usize> = (0..node).filter(|at| ways[*at].len() <= steps).collect();
        // Chains continue at their last node; trees grow at any of the last nodes.
        let parent = open[open.len() - 1 - numbers.below(topk.min(open.len()))];
        let mut way = ways[parent].clone();
        way.push(node);
        ways.push(way);
    }
    ways
}
