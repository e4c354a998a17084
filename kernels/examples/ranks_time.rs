//! Times sums over the GPUs of a group: our own kernel in a graph and outside of one, and NCCL.
//!
//! `ranks_time cuda:0 2` uses two GPUs starting from cuda:0, `ranks_time emulator 2` checks that it
//! runs at all. A figure is the time per sum of many consecutive ones: a few rows as in a decode
//! round, hundreds as in a prompt. Elements are bfloat16.

use std::{env, error::Error, process::ExitCode, sync::Barrier};

use kernels::{
    device::{Collective, Device, DeviceError, Element, GroupId, Mail},
    launch::{Added, Gathered, Kernels, Parts, Rows},
};

/// Rows and width.
const SUMS: [(usize, usize); 8] =
    [(1, 4096), (4, 4096), (32, 4096), (1, 8192), (8, 8192), (128, 4096), (512, 4096), (2048, 4096)];
/// Rows of logits of Llama-3's vocabulary.
const LOGITS: [usize; 3] = [1, 4, 32];
const VOCABULARY: usize = 128_256;

/// The setup of one rank.
struct Rank {
    kernels: Kernels,
    mail: Mail,
    library: Option<Collective>,
    /// Number of consecutive sums, and of runs of these.
    repeats: (usize, usize),
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ranks_time: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let name = arguments.next().ok_or("give a device: cuda:N or emulator")?;
    let ranks: usize = arguments.next().ok_or("say how many")?.parse()?;
    let first: Option<usize> = name.strip_prefix("cuda:").map(str::parse).transpose()?;
    let device = |rank: usize| first.map_or_else(Device::emulated, |first| Device::cuda(first + rank));
    let devices: Vec<Device> = (0..ranks).map(device).collect::<Result<_, _>>()?;
    let (mail, link) = Mail::open(&devices)?;
    println!("{ranks} × {:?}, {link}; microseconds a sum", devices[0]);
    let id = if first.is_some() { Some(GroupId::new()) } else { None };
    if let Some(Err(error)) = &id {
        println!("{error}");
    }
    let id = id.and_then(Result::ok);
    let together = Barrier::new(ranks);
    std::thread::scope(|scope| {
        let work = |(device, mail): (Device, Mail)| {
            let (id, together) = (&id, &together);
            scope.spawn(move || {
                let alarm = mail.alarm().clone();
                let library = id.as_ref().map(|id| Collective::join(&device, id, mail.rank(), ranks)).transpose()?;
                let repeats = if device.properties().emulated { (2, 1) } else { (200, 10) };
                let rank = Rank { kernels: Kernels::new(device, Element::BF16), mail, library, repeats };
                rank.all(together).inspect_err(|_| alarm.ring())
            })
        };
        let threads: Vec<_> = devices.into_iter().zip(mail).map(work).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })?;
    Ok(())
}

impl Rank {
    fn all(&self, together: &Barrier) -> Result<(), DeviceError> {
        let device = self.kernels.device();
        let values = device.zeros(2048 * 8192 * 2)?;
        let parts = device.zeros(4 * 32 * 8192 * 4)?;
        for (rows, width) in SUMS {
            let at = Rows { at: values.slice(), stride: width };
            let bytes = rows * width * 2;
            let own = || self.kernels.sum_ranks(&self.mail, at, Added::Rows(at), rows, width);
            self.time(&format!("{rows} rows of {width} ({bytes} bytes), ours"), together, own)?;
            if rows <= 32 {
                let add = Added::Parts(Parts { at: parts.slice(), count: 4 });
                let own = || self.kernels.sum_ranks(&self.mail, at, add, rows, width);
                self.time(&format!("{rows} rows of {width} ({bytes} bytes), ours, of 4 parts each"), together, own)?;
            }
            if let Some(library) = &self.library {
                let theirs = || library.sum(values.slice(), rows * width, Element::BF16);
                let name = format!("{rows} rows of {width} ({bytes} bytes), {}", library.library());
                self.time(&name, together, theirs)?;
            }
        }
        let part = VOCABULARY / self.mail.ranks();
        let (out, own) = (device.zeros(32 * VOCABULARY * 4)?, device.zeros(32 * part * 4)?);
        for rows in LOGITS {
            let logits = Gathered { out: out.slice(), own: own.slice(), part, vocabulary: VOCABULARY, rows };
            let gather = || self.kernels.gather_ranks(&self.mail, logits);
            self.time(&format!("{rows} rows of {VOCABULARY} logits, gathered"), together, gather)?;
        }
        Ok(())
    }

    /// Prints the time of some work in a graph and outside of one.
    fn time(
        &self,
        name: &str,
        together: &Barrier,
        work: impl Fn() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let device = self.kernels.device();
        let (many, runs) = self.repeats;
        // Loads whatever has not run yet.
        work()?;
        device.synchronize()?;
        together.wait();
        let graph = device.capture(|| (0..many).try_for_each(|_| work()))?;
        together.wait();
        let (begin, end) = (device.event()?, device.event()?);
        let mut best = [f64::INFINITY; 2];
        for _ in 0..=runs {
            let eager = || (0..many).try_for_each(|_| work());
            let ways: [&dyn Fn() -> Result<(), DeviceError>; 2] = [&|| device.run(&graph), &eager];
            for (best, run) in best.iter_mut().zip(ways) {
                together.wait();
                device.record(&begin)?;
                run()?;
                device.record(&end)?;
                end.wait()?;
                *best = best.min(end.since(&begin)?.as_secs_f64() * 1e6 / many as f64);
            }
        }
        if self.mail.rank() == 0 {
            println!("{name}: {:.2} in a graph, {:.2} without", best[0], best[1]);
        }
        Ok(())
    }
}
