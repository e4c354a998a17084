//! Times training steps.

use schemas::train::Precision;
use training::{
    Compute, StepsOn,
    bench::{Speed, TimedSteps, time},
};

/// NVIDIA's figure for dense bfloat16 operations of an H100 SXM, per second.
const H100: f64 = 989e12;

/// What to time.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A published shape, such as llama-3.1-8b with its EAGLE-3 head
    #[arg(long, default_value = "llama-3.1-8b")]
    shape: String,
    /// Steps that the draft runs on its own output
    #[arg(long, default_value_t = 3)]
    unroll: usize,
    /// Texts per step
    #[arg(long, default_value_t = 8)]
    batch_size: usize,
    /// Tokens per text
    #[arg(long, default_value_t = 1024)]
    window: usize,
    /// Timed steps
    #[arg(long, default_value_t = 10)]
    steps: usize,
    /// Warm-up steps before these
    #[arg(long, default_value_t = 3)]
    warm_up: usize,
    /// Index of the GPU
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// Compute in float32
    #[arg(long)]
    float32: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let precision = if arguments.float32 { Precision::Float32 } else { Precision::Bfloat16 };
    let compute = StepsOn::Cuda(arguments.gpu).open(precision)?;
    let timed = TimedSteps {
        shape: &arguments.shape,
        layers: None,
        unroll: arguments.unroll,
        batch_size: arguments.batch_size,
        window: arguments.window,
        steps: arguments.steps,
        warm_up: arguments.warm_up,
    };
    let speed = time(&timed, &compute)?;
    print(arguments, &speed, &compute);
    Ok(())
}

fn print(arguments: &Arguments, speed: &Speed, compute: &Compute) {
    let Arguments { shape, unroll, batch_size, window, .. } = arguments;
    let tera = |value: f64| value / 1e12;
    let bound = |flops: f64| flops / speed.flops_of_a_row;
    let percent = |flops: f64| 100.0 * speed.tokens_per_s / bound(flops);
    println!(
        "{shape}, its draft with {} values, unroll {unroll}, {batch_size} texts of {window} tokens, {}",
        speed.parameters,
        compute.name()
    );
    let [labels, forward, backward, optimiser] = speed.parts_s.map(|part| part * 1e3);
    println!(
        "step        {:.1} ms: labels {labels:.1}, forward {forward:.1}, backward {backward:.1}, optimiser {optimiser:.1}",
        speed.step_s * 1e3
    );
    println!(
        "speed       {:.0} tokens/s, {:.1} TFLOP/s in matrix products",
        speed.tokens_per_s,
        tera(speed.tokens_per_s * speed.flops_of_a_row)
    );
    println!("arithmetic  {:.2} GFLOP per token", speed.flops_of_a_row / 1e9);
    println!(
        "bound       {:.0} tokens/s at {:.0} TFLOP/s, which one plain matrix product reaches here ({:.0}% of it)",
        bound(speed.product_flops),
        tera(speed.product_flops),
        percent(speed.product_flops)
    );
    println!(
        "            {:.0} tokens/s at {:.0} TFLOP/s, from an H100's data sheet ({:.0}% of it)",
        bound(H100),
        tera(H100),
        percent(H100)
    );
    if let Some((before, after)) = speed.memory {
        let gigabytes = |bytes: usize| bytes as f64 / 1e9;
        println!("memory      {:.1} GB in use on the device, {:.1} GB before", gigabytes(after), gigabytes(before));
    }
    println!("loss        {}", speed.loss);
}
