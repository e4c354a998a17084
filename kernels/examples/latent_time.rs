//! Times latent attention in the layers of a pass, with DeepSeek-V3's sizes: attention over the
//! latent plane alone, and with the per-head products around it.
//!
//! `latent_time cuda:0` runs on a GPU, `latent_time emulator` checks with tiny sizes that it runs
//! at all; `context=700` sets the number of positions (default: 4,096), `splits=16` uses the number
//! of splits of batch-invariant mode. Each layer has a separate cache, and the L2 cache is
//! overwritten before each measurement. Next to the times are the bytes of the cache that attention
//! reads, counted once, and its operations. Then follow chunks of prompts over expanded keys and
//! values, if there is a kernel for that.

use std::{env, error::Error, process::ExitCode};

use kernels::{
    checks::Numbers,
    device::{Buffer, Device, DeviceError, Element},
    launch::{
        Kernels, LatentAttention, LatentDims, LatentPrompt, LatentQueries, LatentValues, RotaryRows, VisibleRows,
    },
};

const PAGE_SIZE: usize = 16;
/// Requests, and rows per request: a chain after the context.
const CASES: [(usize, usize); 7] = [(1, 1), (1, 2), (1, 4), (8, 1), (8, 2), (8, 4), (32, 1)];

/// Chunks of prompts: the first position, and rows.
const PROMPTS: [(usize, usize); 4] = [(0, 512), (0, 2048), (6144, 2048), (30_720, 2048)];

/// The sizes of a measurement.
#[derive(Clone, Copy)]
struct Sizes {
    dims: LatentDims,
    context: usize,
    layers: usize,
    replays: usize,
    /// Bytes that are overwritten before each replay.
    flushed: usize,
    /// `None`: as many as keep the device busy.
    splits: Option<usize>,
}

/// Rows of a pass, caches for its layers, and the weights of one layer.
struct Scene {
    sizes: Sizes,
    rows: usize,
    own_stride: usize,
    table_width: usize,
    caches: Buffer,
    x: Buffer,
    queries: Buffer,
    means: Buffer,
    out: Buffer,
    absorb: Buffer,
    expand: Buffer,
    turns: Buffer,
    partial: Buffer,
    page_table: Buffer,
    position: Buffer,
    slot: Buffer,
    prefix: Buffer,
    own_count: Buffer,
    own: Buffer,
    flushed: Buffer,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("latent_time: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let name = arguments.next().ok_or("give a device: cuda:N or emulator")?;
    let dims = LatentDims { heads: 128, nope: 128, rotated: 64, rank: 512, value: 128, interleaved: true };
    let (device, mut sizes) = match name.strip_prefix("cuda:") {
        Some(number) => {
            let sizes = Sizes { dims, context: 4096, layers: 16, replays: 30, flushed: 256 << 20, splits: None };
            (Device::cuda(number.parse()?)?, sizes)
        }
        None => {
            let dims = LatentDims { heads: 3, nope: 32, rotated: 16, rank: 64, value: 64, interleaved: true };
            (Device::emulated()?, Sizes { dims, context: 70, layers: 2, replays: 1, flushed: 4, splits: None })
        }
    };
    for argument in arguments {
        match argument.split_once('=') {
            Some(("context", positions)) => sizes.context = positions.parse()?,
            Some(("splits", splits)) => sizes.splits = Some(splits.parse()?),
            _ => return Err(format!("{argument} is neither context=N nor splits=N").into()),
        }
    }
    println!("{device:?}, context {}, a layer", sizes.context);
    println!(
        "{:>8} {:>5} {:>12} {:>14} {:>8} {:>8} {:>10}",
        "requests", "rows", "attention µs", "with heads µs", "MB", "GFLOP", "TFLOP/s"
    );
    for (requests, nodes) in CASES {
        let kernels = Kernels::new(device.clone(), Element::BF16);
        let scene = Scene::new(&kernels, requests, nodes, sizes)?;
        let attention = scene.time(&kernels, |layer| scene.attend(&kernels, layer))?;
        let with_heads = scene.time(&kernels, |layer| scene.attend_with_heads(&kernels, layer))?;
        let (megabytes, gflop) = scene.work(requests, nodes);
        println!(
            "{requests:>8} {nodes:>5} {attention:>12.2} {with_heads:>14.2} {megabytes:>8.2} {gflop:>8.2} {:>10.1}",
            gflop / attention * 1e3
        );
    }
    let dims = sizes.dims;
    if !Kernels::expands_latents(Element::BF16, &dims, device.properties()) {
        return Ok(());
    }
    println!("{:>8} {:>5} {:>12} {:>14} {:>10}", "start", "rows", "attention µs", "GFLOP", "TFLOP/s");
    for (start, rows) in PROMPTS {
        let (start, rows) = if sizes.replays == 1 { (start / 1024, rows / 64) } else { (start, rows) };
        let time = prompt_time(&Kernels::new(device.clone(), Element::BF16), sizes, start, rows)?;
        let pairs = rows * start + rows * (rows + 1) / 2;
        let gflop = (pairs * dims.heads * (dims.nope + dims.rotated + dims.value) * 2) as f64 / 1e9;
        println!("{start:>8} {rows:>5} {time:>12.2} {gflop:>14.2} {:>10.1}", gflop / time * 1e3);
    }
    Ok(())
}

/// Median microseconds of a chunk of a prompt over the expanded keys and values of all heads, which
/// already exist.
fn prompt_time(kernels: &Kernels, sizes: Sizes, start: usize, rows: usize) -> Result<f64, DeviceError> {
    let (device, dims, element) = (kernels.device(), sizes.dims, kernels.element().bytes());
    let random = |values: usize, seed| {
        let buffer = device.allocate(values * element)?;
        kernels.fill_random(buffer.slice(), 0.5, seed).map(|()| buffer)
    };
    let positions = start + rows;
    let query = random(rows * dims.query_width(), 1)?;
    let keys = random(positions * dims.heads * dims.nope, 2)?;
    let values = random(positions * dims.heads * dims.value, 3)?;
    let turned = random(positions * dims.rotated, 4)?;
    let out = device.allocate(rows * dims.heads * dims.value * element)?;
    let run = || {
        kernels.latent_prompt(LatentPrompt {
            out: out.slice(),
            query: query.slice(),
            keys: keys.slice(),
            values: values.slice(),
            turned: turned.slice(),
            first_head: 0,
            heads: dims.heads,
            start,
            rows,
            dims,
            scale: 0.1,
        })
    };
    run()?;
    let mut times = Vec::with_capacity(sizes.replays);
    for _ in 0..sizes.replays {
        let begin = device.event()?;
        run()?;
        let end = device.event()?;
        end.wait()?;
        times.push(end.since(&begin)?.as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

impl Scene {
    fn new(kernels: &Kernels, requests: usize, nodes: usize, sizes: Sizes) -> Result<Self, DeviceError> {
        let Sizes { dims, context, layers, .. } = sizes;
        let device = kernels.device();
        let mut numbers = Numbers::new((requests * 1000 + nodes) as u64);
        let table_width = (context + nodes).div_ceil(PAGE_SIZE);
        let mut pages: Vec<i32> = (0..(requests * table_width) as i32).collect();
        for at in (1..pages.len()).rev() {
            pages.swap(at, numbers.below(at + 1));
        }
        let cache_row = |request: usize, position: usize| {
            pages[request * table_width + position / PAGE_SIZE] * PAGE_SIZE as i32 + (position % PAGE_SIZE) as i32
        };
        // In addition to the context, each row of a chain sees the rows before it and itself.
        let of_rows = || (0..requests).flat_map(|request| (0..nodes).map(move |node| (request, node)));
        let own: Vec<i32> = of_rows()
            .flat_map(|(request, node)| (0..nodes).map(move |at| (request, at.min(node))))
            .map(|(request, at)| cache_row(request, context + at))
            .collect();
        let ints = |of: fn((usize, usize)) -> usize| -> Vec<i32> { of_rows().map(|row| of(row) as i32).collect() };
        let rows = requests * nodes;
        let element = kernels.element().bytes();
        let random = |values: usize, seed| {
            let buffer = device.allocate(values * element)?;
            kernels.fill_random(buffer.slice(), 0.5, seed).map(|()| buffer)
        };
        let turns: Vec<f32> =
            (0..(context + nodes) * dims.rotated / 2).flat_map(|at| [(at as f32).cos(), (at as f32).sin()]).collect();
        let most_splits = sizes.splits.unwrap_or(device.properties().multiprocessors.div_ceil(rows).max(2));
        Ok(Self {
            sizes,
            rows,
            own_stride: nodes,
            table_width,
            caches: random(layers * pages.len() * PAGE_SIZE * dims.width(), 1)?,
            x: random(rows * dims.query_width(), 2)?,
            queries: random(rows * dims.heads * dims.width(), 3)?,
            means: device.allocate(rows * dims.heads * dims.rank * element)?,
            out: device.allocate(rows * dims.heads * dims.value * element)?,
            absorb: random(dims.heads * dims.rank * dims.nope, 4)?,
            expand: random(dims.heads * dims.value * dims.rank, 5)?,
            turns: device.upload(&turns)?,
            partial: device.allocate(Kernels::latent_workspace(rows, &dims, most_splits).max(16))?,
            page_table: device.upload(&pages)?,
            position: device.upload(&of_rows().map(|(_, node)| (context + node) as i32).collect::<Vec<_>>())?,
            slot: device.upload(&ints(|(request, _)| request))?,
            prefix: device.upload(&vec![context as i32; rows])?,
            own_count: device.upload(&ints(|(_, node)| node + 1))?,
            own: device.upload(&own)?,
            flushed: device.allocate(sizes.flushed)?,
        })
    }

    /// Megabytes of the cache that attention reads, and billions of operations.
    fn work(&self, requests: usize, nodes: usize) -> (f64, f64) {
        let Sizes { dims, context, .. } = self.sizes;
        let bytes = requests * (context + nodes) * dims.width() * Element::BF16.bytes();
        let seen: usize = (1..=nodes).map(|own| context + own).sum();
        let operations = requests * seen * dims.heads * (dims.width() + dims.rank) * 2;
        (bytes as f64 / 1e6, operations as f64 / 1e9)
    }

    fn attend(&self, kernels: &Kernels, layer: usize) -> Result<(), DeviceError> {
        let plane = self.caches.bytes() / self.sizes.layers;
        kernels.latent_attention(LatentAttention {
            out: self.means.slice(),
            query: self.queries.slice(),
            cache: self.caches.range(layer * plane..(layer + 1) * plane),
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
            dims: self.sizes.dims,
            scale: 0.1,
            partial: self.partial.slice(),
            max_splits: self.sizes.splits.unwrap_or(usize::MAX),
            by_rows: self.sizes.splits.is_none(),
        })
    }

    fn attend_with_heads(&self, kernels: &Kernels, layer: usize) -> Result<(), DeviceError> {
        let (rows, dims) = (self.rows, self.sizes.dims);
        kernels.latent_queries(LatentQueries {
            out: self.queries.slice(),
            x: self.x.slice(),
            absorb: self.absorb.slice(),
            rotary: RotaryRows {
                table: self.turns.slice(),
                positions: self.turns.bytes() / (dims.rotated / 2 * 8),
                position: self.position.slice(),
            },
            rows,
            dims,
        })?;
        self.attend(kernels, layer)?;
        let (out, x, expand) = (self.out.slice(), self.means.slice(), self.expand.slice());
        kernels.latent_values(LatentValues { out, x, expand, rows, dims })
    }

    /// Median microseconds per layer in a graph of all layers.
    fn time(&self, kernels: &Kernels, layer: impl Fn(usize) -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        let (device, Sizes { layers, replays, .. }) = (kernels.device(), self.sizes);
        // Kernels are compiled and loaded before the recording.
        layer(0)?;
        let graph = device.capture(|| (0..layers).try_for_each(&layer))?;
        device.run(&graph)?;
        let mut times = Vec::with_capacity(replays);
        for _ in 0..replays {
            device.fill(self.flushed.slice(), 0)?;
            let begin = device.event()?;
            device.run(&graph)?;
            let end = device.event()?;
            end.wait()?;
            times.push(end.since(&begin)?.as_secs_f64() * 1e6 / layers as f64);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }
}
