//! Checks the engine's invariants on the user's device, with small random models generated on the
//! fly.

pub(crate) mod adjusted;
mod batches;
mod budgets;
mod comparison;
mod default_mode;
mod joined;
mod kernel_checks;
mod kv_cache;
mod logprobs;
pub(crate) mod models;
mod ranks;
mod replays;
mod texts;

use schemas::tree::TreeShape;

use self::{
    adjusted::adjusted_as_on_cpu,
    batches::shrinking_and_growing,
    budgets::check_budgets,
    default_mode::near_batch_invariant,
    joined::check_joined,
    kernel_checks::kernel_checks,
    kv_cache::check_kv_cache,
    logprobs::same_as_cpu,
    models::{Pair, RandomModels},
    ranks::{check_dead_rank, check_exchanges},
    replays::same_as_rounds,
    texts::check_texts,
};
use crate::{
    Completion, DeviceChoice, Engine, EngineError, EngineOptions, Request, SamplingParams, ShapePolicy, StopConditions,
    WeightFolders,
    backend::VerifyPlan,
    load::devices,
    options::{Fp8Compute, Quantization},
};

/// A promise of the engine, and the result of checking it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The promise.
    pub name: String,
    /// How it was broken; `None` if it was kept.
    pub failure: Option<String>,
}

/// Which checks run.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// Everything.
    Whole,
    /// All kernels, and a few of the engine's promises.
    Quick,
    /// The kernels whose checks have one of these texts in their names.
    Kernels(&'a [String]),
    /// The engine's promises for drafts and targets that have one of these texts in their names;
    /// `texts` for drafts that are looked up.
    Engines(&'a [String]),
}

/// Extent of the engine's checks.
#[derive(Clone, Copy, Debug)]
struct SelftestExtent {
    dtypes: &'static [&'static str],
    /// 2-byte types in which the default mode, which has separate kernels on a GPU, is compared
    /// with batch-invariant mode.
    default_dtypes: &'static [&'static str],
    /// Types of activations for which everything is also checked with FP8 weights.
    fp8_dtypes: &'static [&'static str],
    /// Targets with their drafts.
    pairs: &'static [Pair],
    /// Tree shapes that cover every case: chains, one step, wide, deep, more nodes than bits in a
    /// machine word.
    shapes: &'static [&'static str],
    /// Batch sizes around the capture sizes.
    batches: &'static [usize],
    page_sizes: &'static [usize],
    /// Output tokens per request.
    tokens: usize,
}

const CPU: SelftestExtent = SelftestExtent {
    dtypes: &["float32"],
    default_dtypes: &[],
    fp8_dtypes: &["float32"],
    pairs: &models::PAIRS,
    shapes: &["1,1,2", "5,1,6", "1,6,7", "3,2,6", "4,4,20", "3,8,64", "4,8,80"],
    batches: &[1, 3, 9],
    page_sizes: &[1, 16],
    tokens: 12,
};

const GPU: SelftestExtent = SelftestExtent {
    dtypes: &["float32", "bfloat16", "float16"],
    default_dtypes: &["bfloat16", "float16"],
    fp8_dtypes: &["bfloat16", "float16"],
    pairs: &models::PAIRS,
    shapes: &[
        "1,1,2", "3,1,4", "5,1,6", "1,6,7", "3,2,6", "5,4,8", "4,4,20", "5,8,32", "8,10,60", "4,8,80", "6,12,128",
    ],
    batches: &[1, 3, 8, 17, 40],
    page_sizes: &[1, 16, 64],
    tokens: 24,
};

/// Reduced plan for running under a sanitizer or in the emulator.
const QUICK: SelftestExtent = SelftestExtent {
    dtypes: &["float32"],
    default_dtypes: &["bfloat16"],
    fp8_dtypes: &["bfloat16"],
    pairs: &[Pair::Eagle3, Pair::Glm],
    shapes: &["3,2,6"],
    batches: &[3],
    page_sizes: &[16],
    tokens: 4,
};

/// The same for a model on several devices: dense layers and experts, and a draft that is split
/// too.
const QUICK_SHARED: SelftestExtent =
    SelftestExtent { default_dtypes: &[], pairs: &[Pair::Qwen3Moe], shapes: &["2,2,4"], batches: &[2], ..QUICK };

/// Runs checks and reports each when it ends: on one device, or with models that are split over
/// several GPUs, starting at that one.
///
/// # Errors
/// When the device cannot be used, or no check matches the given names.
pub fn run(
    choice: DeviceChoice,
    ranks: usize,
    scope: Scope<'_>,
    report: &mut dyn FnMut(Check),
) -> Result<(), EngineError> {
    let devices = devices(choice, ranks)?;
    if ranks > 1 {
        let plan = if matches!(scope, Scope::Whole | Scope::Engines(_)) { GPU } else { QUICK_SHARED };
        let wanted = wanted(scope, plan)?;
        // The random models are small, with heads for at most this many ranks; names of checks show
        // the number.
        let ranks = ranks.min(models::QUERY_HEADS);
        if matches!(scope, Scope::Engines(_)) {
            return check_engines(choice, ranks, plan, wanted, report);
        }
        check_exchanges(&devices, report);
        check_engines(choice, ranks, plan, wanted, report)?;
        return check_dead_rank(choice, ranks, plan, report);
    }
    let device = devices.into_iter().next();
    match (&device, scope) {
        (_, Scope::Engines(_)) => {}
        (Some((device, _)), _) => {
            for check in kernel_checks(scope)? {
                report(Check { name: format!("kernel {}", check.name), failure: (check.run)(device).err() });
            }
        }
        (None, Scope::Kernels(_)) => {
            return Err(EngineError::Configuration("kernels run on a GPU: give --device cuda:N".into()));
        }
        (None, _) => {}
    }
    let plan = match (scope, device) {
        (Scope::Kernels(_), _) => return Ok(()),
        (Scope::Quick, _) => QUICK,
        (Scope::Whole | Scope::Engines(_), None) => CPU,
        (Scope::Whole | Scope::Engines(_), Some(_)) => GPU,
    };
    check_engines(choice, ranks, plan, wanted(scope, plan)?, report)
}

/// The drafts and targets of a plan that a scope names.
fn wanted(scope: Scope<'_>, plan: SelftestExtent) -> Result<PairFilter<'_>, EngineError> {
    let wanted = PairFilter(if let Scope::Engines(names) = scope { names } else { &[] });
    if wanted.holds(TEXTS) || plan.pairs.iter().any(|pair| wanted.has(*pair)) {
        return Ok(wanted);
    }
    let known: Vec<String> = plan.pairs.iter().map(ToString::to_string).collect();
    Err(EngineError::Configuration(format!(
        "no draft or target has {} in its name: there are {} and {TEXTS}",
        wanted.0.join(" or "),
        known.join(", ")
    )))
}

/// Name of the checks of drafts that are looked up in texts.
const TEXTS: &str = "texts";

/// Which drafts and targets are checked: those with one of these texts in their names, or all if
/// there are none.
#[derive(Clone, Copy, Debug)]
struct PairFilter<'a>(&'a [String]);

impl PairFilter<'_> {
    fn has(self, pair: Pair) -> bool {
        self.holds(&pair.to_string())
    }

    fn holds(self, name: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|text| name.contains(text))
    }
}

/// Configuration of an engine.
#[derive(Clone, Copy, Debug)]
struct EngineConfiguration {
    choice: DeviceChoice,
    ranks: usize,
    dtype: &'static str,
    pair: Pair,
    page_size: usize,
    batch_invariant: bool,
    quantization: Option<Quantization>,
    fp8_compute: Option<Fp8Compute>,
}

impl EngineConfiguration {
    /// In batch-invariant mode, with weights in their stored format.
    fn new(choice: DeviceChoice, ranks: usize, dtype: &'static str, pair: Pair, page_size: usize) -> Self {
        Self { choice, ranks, dtype, pair, page_size, batch_invariant: true, quantization: None, fp8_compute: None }
    }
}

fn check_engines(
    choice: DeviceChoice,
    ranks: usize,
    plan: SelftestExtent,
    wanted: PairFilter<'_>,
    report: &mut dyn FnMut(Check),
) -> Result<(), EngineError> {
    let models = RandomModels::write()?;
    let pairs: Vec<Pair> = plan.pairs.iter().copied().filter(|pair| wanted.has(*pair)).collect();
    for dtype in plan.dtypes {
        for pair in &pairs {
            for page_size in plan.page_sizes {
                check_engine(&models, EngineConfiguration::new(choice, ranks, dtype, *pair, *page_size), plan, report)?;
            }
        }
    }
    let last_page_size = plan.page_sizes.last().copied().unwrap_or(1);
    for dtype in plan.default_dtypes {
        // A router chooses by comparing scores: rounding that is negligible elsewhere can send a
        // row to other experts, with a different output.
        let is_smooth = |pair: &&Pair| *dtype == "float32" || !pair.has_experts();
        for pair in pairs.iter().filter(is_smooth) {
            let setting = EngineConfiguration::new(choice, ranks, dtype, *pair, last_page_size);
            let mut default = load(&models, EngineConfiguration { batch_invariant: false, ..setting }, plan, false)?;
            let mut invariant = load(&models, setting, plan, false)?;
            report(Check {
                name: format!(
                    "{pair}, {dtype}: the default mode agrees with batch-invariant mode on tokens and log-probabilities"
                ),
                failure: near_batch_invariant(&mut default, &mut invariant, plan, setting)?,
            });
        }
    }
    if wanted.holds(TEXTS) {
        check_texts(&models, choice, ranks, plan, report)?;
    }
    check_kv_cache(&models, choice, plan, &pairs, report)?;
    check_fp8(&models, choice, plan, &pairs, report)
}

/// The same for weights that are quantised to FP8 at load time, with the first model without and
/// with experts also for products in FP8: output that does not depend on the tree, and a default
/// mode that agrees with batch-invariant mode.
fn check_fp8(
    models: &RandomModels,
    choice: DeviceChoice,
    plan: SelftestExtent,
    pairs: &[Pair],
    report: &mut dyn FnMut(Check),
) -> Result<(), EngineError> {
    let page_size = plan.page_sizes.last().copied().unwrap_or(1);
    let first = |experts: bool| pairs.iter().find(move |pair| pair.has_experts() == experts && **pair != Pair::GptOss);
    let products = || [false, true].into_iter().filter_map(first).map(|pair| (pair, Fp8Compute::Products));
    for dtype in plan.fp8_dtypes {
        let weights = pairs.iter().map(|pair| (pair, Fp8Compute::Weights));
        for (pair, compute) in weights.chain(products()) {
            let setting = EngineConfiguration {
                quantization: Some(Quantization::Fp8),
                fp8_compute: Some(compute),
                ..EngineConfiguration::new(choice, 1, dtype, *pair, page_size)
            };
            let what = format!("{pair}, {dtype} and fp8 {}", compute.name());
            let mut invariant = load(models, setting, plan, false)?;
            let batch = plan.batches.last().copied().unwrap_or(1);
            report(Check {
                name: format!("{what}: greedy output of batch {batch} does not depend on the tree"),
                failure: same_output(&mut invariant, plan, &SamplingParams::default(), batch)?,
            });
            if !plan.default_dtypes.contains(dtype) || pair.has_experts() {
                continue;
            }
            let mut default = load(models, EngineConfiguration { batch_invariant: false, ..setting }, plan, false)?;
            report(Check {
                name: format!(
                    "{what}: the default mode agrees with batch-invariant mode on tokens and log-probabilities"
                ),
                failure: near_batch_invariant(&mut default, &mut invariant, plan, setting)?,
            });
        }
    }
    Ok(())
}

fn check_engine(
    models: &RandomModels,
    setting: EngineConfiguration,
    plan: SelftestExtent,
    report: &mut dyn FnMut(Check),
) -> Result<(), EngineError> {
    let EngineConfiguration { dtype, pair, page_size, .. } = setting;
    let ranks = if setting.ranks > 1 { format!(", {} ranks", setting.ranks) } else { String::new() };
    let label = format!("{pair}, {dtype}, page size {page_size}{ranks}");
    let mut engine = load(models, setting, plan, false)?;
    for (name, sampling) in [("greedy", SamplingParams::default()), ("sampled", sampled())] {
        for batch in plan.batches {
            let failure = same_output(&mut engine, plan, &sampling, *batch)?;
            report(Check {
                name: format!("{label}: {name} output of batch {batch} does not depend on the tree"),
                failure,
            });
        }
    }
    report(Check {
        name: format!("{label}: batches shrink and grow at random (SGLang #9521, #9888, #9481)"),
        failure: shrinking_and_growing(&mut engine, plan)?,
    });
    report(Check {
        name: format!("{label}: a replay of known texts accepts what rounds accept"),
        failure: same_as_rounds(&mut engine, plan)?,
    });
    let accepted = engine.statistics().accepted_drafts();
    report(Check {
        name: format!("{label}: some drafts were accepted, so that acceptance was tested"),
        failure: (accepted == 0).then(|| "none was".into()),
    });
    let used = engine.statistics().pages_used;
    report(Check {
        name: format!("{label}: every page is released"),
        failure: (used > 0).then(|| format!("{used} pages are still in use")),
    });
    // This does not depend on the page size.
    if plan.page_sizes.last() == Some(&page_size) {
        report(Check {
            name: format!("{label}: replaced weights give the same output as an engine that was loaded with them"),
            failure: exchanged(models, setting, plan)?,
        });
        check_joined(models, setting, plan, &label, report)?;
        // The reduced plan has a test of its own for them.
        if !setting.pair.has_states() && plan.batches.len() > 1 {
            check_budgets(models, setting, plan, &label, report)?;
        }
    }
    if setting.choice != DeviceChoice::Cpu && engine.device().device != "cpu" {
        let mut eager = load(models, setting, plan, true)?;
        report(Check {
            name: format!("{label}: rounds without graphs give the same output"),
            failure: same_engines(&mut engine, &mut eager, plan)?,
        });
        let verify_plan = Some(VerifyPlan::InnerNodesFirst);
        let mut inner_first = Engine::load(EngineOptions { verify_plan, ..options(models, setting, plan) })?;
        report(Check {
            name: format!("{label}: a target that runs over inner nodes first gives the same output"),
            failure: same_engines(&mut engine, &mut inner_first, plan)?,
        });
        if dtype == "float32" {
            let mut cpu = load(models, EngineConfiguration::new(DeviceChoice::Cpu, 1, dtype, pair, 16), plan, false)?;
            report(Check {
                name: format!("{label}: tokens and log-probabilities match the CPU's"),
                failure: same_as_cpu(&mut engine, &mut cpu, plan)?,
            });
            report(Check {
                name: format!("{label}: penalties, grammars and log-probabilities of prompts are as on the CPU"),
                failure: adjusted_as_on_cpu(&mut engine, &mut cpu, plan)?,
            });
        }
    }
    Ok(())
}

fn shapes(plan: SelftestExtent) -> impl Iterator<Item = TreeShape> {
    plan.shapes.iter().filter_map(|shape| shape.parse::<TreeShape>().ok())
}

fn load(
    models: &RandomModels,
    setting: EngineConfiguration,
    plan: SelftestExtent,
    eager: bool,
) -> Result<Engine, EngineError> {
    Engine::load(EngineOptions { disable_cuda_graph: eager, ..options(models, setting, plan) })
}

fn options(models: &RandomModels, setting: EngineConfiguration, plan: SelftestExtent) -> EngineOptions {
    let largest = shapes(plan).max_by_key(|shape| shape.num_draft_tokens).unwrap_or(TreeShape::OFF);
    EngineOptions {
        model_path: models.target(setting.pair),
        draft_model_path: models.draft(setting.pair),
        algorithm: Some(setting.pair.algorithm().to_owned()),
        policy: ShapePolicy::fixed(largest),
        device: setting.choice,
        dtype: setting.dtype.to_owned(),
        max_running_requests: plan.batches.iter().copied().max().unwrap_or(1),
        page_size: setting.page_size,
        tp_size: setting.ranks,
        // Covers both ways of running a draft.
        split_draft: (setting.ranks > 1).then_some(setting.pair != Pair::Eagle),
        batch_invariant: setting.batch_invariant,
        quantization: setting.quantization,
        fp8_compute: setting.fp8_compute,
        draft_quantization: setting.quantization,
        // With gaps, so that batches are padded.
        capture_sizes: vec![1, 2, 4, 8, 16, 32],
        chunked_prefill_size: 32,
        ..EngineOptions::default()
    }
}

/// Every shape gives, bit for bit, the output of plain decoding of each request alone.
fn same_output(
    engine: &mut Engine,
    plan: SelftestExtent,
    sampling: &SamplingParams,
    batch: usize,
) -> Result<Option<String>, EngineError> {
    let requests: Vec<Request> = (0..batch).map(|at| request(at, sampling, plan.tokens)).collect();
    let alone = alone(engine, &requests)?;
    for shape in shapes(plan) {
        engine.set_policy(ShapePolicy::fixed(shape))?;
        let together = engine.run(requests.clone())?;
        if let Some(difference) = difference(&alone, &together) {
            return Ok(Some(format!("shape {shape}, {difference}")));
        }
    }
    Ok(None)
}

/// Two engines give the same output.
fn same_engines(one: &mut Engine, other: &mut Engine, plan: SelftestExtent) -> Result<Option<String>, EngineError> {
    let batch = plan.batches.get(1).copied().unwrap_or(2);
    let requests: Vec<Request> = (0..batch).map(|at| request(at, &sampled(), plan.tokens)).collect();
    for_each_shape(one, other, shapes(plan), |one, other| {
        Ok(difference(&one.run(requests.clone())?, &other.run(requests.clone())?))
    })
}

/// The first difference between two engines that run the same shapes, with the shape.
fn for_each_shape(
    one: &mut Engine,
    other: &mut Engine,
    shapes: impl Iterator<Item = TreeShape>,
    mut compare: impl FnMut(&mut Engine, &mut Engine) -> Result<Option<String>, EngineError>,
) -> Result<Option<String>, EngineError> {
    for shape in shapes {
        one.set_policy(ShapePolicy::fixed(shape))?;
        other.set_policy(ShapePolicy::fixed(shape))?;
        if let Some(difference) = compare(one, other)? {
            return Ok(Some(format!("shape {shape}, {difference}")));
        }
    }
    Ok(None)
}

/// An engine replaces its weights with others, and then with the original ones.
fn exchanged(
    models: &RandomModels,
    setting: EngineConfiguration,
    plan: SelftestExtent,
) -> Result<Option<String>, EngineError> {
    let others = RandomModels::write_seeded(1)?;
    let mut engine = load(models, setting, plan, false)?;
    let requests = vec![request(0, &sampled(), plan.tokens)];
    let shape = shapes(plan).next().unwrap_or(TreeShape::OFF);
    engine.set_policy(ShapePolicy::fixed(shape))?;
    let first = engine.run(requests.clone())?;
    let folders =
        |of: &RandomModels| WeightFolders { model: Some(of.target(setting.pair)), draft: of.draft(setting.pair) };
    engine.update_weights(&folders(&others), true)?;
    if let Some(difference) = same_engines(&mut engine, &mut load(&others, setting, plan, false)?, plan)? {
        return Ok(Some(difference));
    }
    engine.update_weights(&folders(models), true)?;
    engine.set_policy(ShapePolicy::fixed(shape))?;
    Ok(difference(&first, &engine.run(requests)?))
}

/// Plain decoding of each request alone.
fn alone(engine: &mut Engine, requests: &[Request]) -> Result<Vec<Completion>, EngineError> {
    engine.set_policy(ShapePolicy::fixed(TreeShape::OFF))?;
    let completions = requests.iter().map(|request| engine.run(vec![request.clone()]));
    Ok(completions.collect::<Result<Vec<_>, _>>()?.concat())
}

/// The first difference between outputs.
fn difference(expected: &[Completion], found: &[Completion]) -> Option<String> {
    let at = expected.iter().zip(found).position(|(expected, found)| expected.output_ids != found.output_ids)?;
    let (expected, found) = (&expected[at].output_ids, &found[at].output_ids);
    let length = expected.len().min(found.len());
    let place = expected.iter().zip(found).position(|(a, b)| a != b).unwrap_or(length);
    Some(format!("request {at} leaves plain decoding at token {place}"))
}

fn request(at: usize, sampling: &SamplingParams, tokens: usize) -> Request {
    // Prompts of all lengths around page and chunk boundaries.
    let length = 1 + (at * 7) % 40;
    Request {
        input_ids: (0..length).map(|place| ((at * 31 + place * 17) % models::VOCABULARY) as u32).collect(),
        sampling: SamplingParams { seed: sampling.seed + at as u64, ..sampling.clone() },
        stop: StopConditions { max_new_tokens: Some(tokens), ignore_eos: true, ..StopConditions::default() },
    }
}

fn sampled() -> SamplingParams {
    SamplingParams { temperature: 0.9, top_p: 0.95, top_k: 12, seed: 11, ..SamplingParams::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(choice: DeviceChoice, ranks: usize, plan: SelftestExtent) -> Vec<Check> {
        let mut checks = Vec::new();
        check_engines(choice, ranks, plan, PairFilter(&[]), &mut |check| checks.push(check))
            .expect("the device is there");
        assert!(checks.len() >= 7, "{checks:?}");
        let in_float = choice != DeviceChoice::Cpu && plan.dtypes.contains(&"float32");
        let adjusts = checks.iter().any(|check| check.name.contains("penalties, grammars"));
        assert_eq!(adjusts, in_float, "{checks:?}");
        checks.into_iter().filter(|check| check.failure.is_some()).collect()
    }

    #[test]
    fn all_promises_are_kept_on_the_cpu() {
        assert_eq!(broken(DeviceChoice::Cpu, 1, CPU), []);
    }

    // The kernels' own checks run in the emulator where the kernels are defined.
    #[test]
    fn all_promises_are_kept_in_the_emulator() {
        assert_eq!(broken(DeviceChoice::Emulator, 1, QUICK), []);
    }

    #[test]
    fn all_promises_are_kept_of_experts_and_mtp_layers_in_the_emulator() {
        let plan = SelftestExtent {
            dtypes: &["bfloat16"],
            default_dtypes: &[],
            fp8_dtypes: &[],
            pairs: &[Pair::Qwen3Moe, Pair::Mimo],
            shapes: &["3,1,4", "2,2,4"],
            tokens: 6,
            ..QUICK
        };
        assert_eq!(broken(DeviceChoice::Emulator, 1, plan), []);
    }

    #[test]
    fn budgets_of_rows_change_nothing_with_drafts_of_every_kind_in_the_emulator() {
        let plan = SelftestExtent { batches: &[2, 3], tokens: 10, ..QUICK };
        let models = RandomModels::write().expect("a folder");
        for pair in [Pair::Eagle3, Pair::GptOss, Pair::Dspark, Pair::Standalone] {
            let mut checks = Vec::new();
            let setting = EngineConfiguration::new(DeviceChoice::Emulator, 1, "float32", pair, 16);
            check_budgets(&models, setting, plan, "it", &mut |check| checks.push(check)).expect("it runs");
            let broken: Vec<&Check> = checks.iter().filter(|check| check.failure.is_some()).collect();
            assert!(checks.len() == 2 && broken.is_empty(), "{pair}: {} checks, {broken:?}", checks.len());
        }
    }

    #[test]
    fn look_ups_with_drafts_of_every_kind_change_nothing_in_the_emulator() {
        let plan = SelftestExtent { batches: &[3], tokens: 12, ..QUICK };
        let models = RandomModels::write().expect("a folder");
        for pair in [Pair::Eagle, Pair::Qwen35, Pair::GptOss, Pair::Dflash, Pair::Dspark, Pair::Standalone] {
            let mut checks = Vec::new();
            let setting = EngineConfiguration::new(DeviceChoice::Emulator, 1, "float32", pair, 64);
            check_joined(&models, setting, plan, "it", &mut |check| checks.push(check)).expect("it runs");
            let broken: Vec<&Check> = checks.iter().filter(|check| check.failure.is_some()).collect();
            // Two for each rule.
            assert!(checks.len() == 4 && broken.is_empty(), "{pair}: {} checks, {broken:?}", checks.len());
        }
    }

    #[test]
    fn all_promises_are_kept_of_gated_delta_nets_in_the_emulator() {
        // With enough tokens that some drafts are accepted.
        let plan = SelftestExtent { pairs: &[Pair::Qwen35], shapes: &["2,1,3", "3,2,6"], tokens: 10, ..QUICK };
        assert_eq!(broken(DeviceChoice::Emulator, 1, plan), []);
    }

    #[test]
    fn all_promises_are_kept_of_gated_delta_nets_with_experts_in_the_emulator() {
        let plan = SelftestExtent {
            dtypes: &["bfloat16"],
            default_dtypes: &[],
            fp8_dtypes: &[],
            pairs: &[Pair::Qwen35Moe],
            shapes: &["3,2,6"],
            ..QUICK
        };
        assert_eq!(broken(DeviceChoice::Emulator, 1, plan), []);
    }

    #[test]
    fn all_promises_are_kept_of_heads_on_gated_delta_nets_in_the_emulator() {
        // With enough tokens that some drafts are accepted.
        let heads = SelftestExtent { fp8_dtypes: &[], default_dtypes: &[], shapes: &["3,2,6"], tokens: 10, ..QUICK };
        let plan = SelftestExtent { pairs: &[Pair::Qwen35Eagle3, Pair::Qwen35Dspark], ..heads };
        assert_eq!(broken(DeviceChoice::Emulator, 1, plan), []);
        let plan = SelftestExtent { pairs: &[Pair::Qwen35MoeDflash], dtypes: &["bfloat16"], ..heads };
        assert_eq!(broken(DeviceChoice::Emulator, 1, plan), []);
    }

    #[test]
    fn all_promises_are_kept_of_gpt_oss_in_the_emulator() {
        let plan = SelftestExtent { default_dtypes: &[], fp8_dtypes: &[], pairs: &[Pair::GptOss], tokens: 6, ..QUICK };
        assert_eq!(broken(DeviceChoice::Emulator, 1, plan), []);
        // Tensor cores, whose sums have another order: output depends on the tree where an expert
        // changes.
        let models = RandomModels::write().expect("a folder");
        let setting = EngineConfiguration::new(DeviceChoice::Emulator, 1, "bfloat16", Pair::GptOss, 16);
        let mut default =
            load(&models, EngineConfiguration { batch_invariant: false, ..setting }, plan, false).expect("it loads");
        assert!(default.run(vec![request(5, &SamplingParams::default(), 4)]).is_ok());
    }

    #[test]
    fn all_promises_are_kept_of_block_heads_in_the_emulator() {
        let plan =
            SelftestExtent { fp8_dtypes: &[], pairs: &[Pair::Dflash, Pair::Dspark], shapes: &["3,2,6"], ..QUICK };
        assert_eq!(broken(DeviceChoice::Emulator, 1, plan), []);
    }

    #[test]
    fn all_promises_are_kept_of_a_whole_model_that_drafts_in_the_emulator() {
        assert_eq!(broken(DeviceChoice::Emulator, 1, SelftestExtent { pairs: &[Pair::Standalone], ..QUICK }), []);
    }

    #[test]
    fn all_promises_are_kept_of_a_whole_model_that_drafts_on_two_ranks_in_the_emulator() {
        assert_eq!(
            broken(DeviceChoice::Emulator, 2, SelftestExtent { pairs: &[Pair::Standalone], ..QUICK_SHARED }),
            []
        );
    }

    #[test]
    fn all_promises_are_kept_of_gated_delta_nets_on_two_ranks_in_the_emulator() {
        // With enough tokens that some drafts are accepted, and with experts in FP8.
        let plan = SelftestExtent { shapes: &["3,2,6"], tokens: 10, ..QUICK_SHARED };
        let dense = SelftestExtent { pairs: &[Pair::Qwen35], fp8_dtypes: &[], ..plan };
        assert_eq!(broken(DeviceChoice::Emulator, 2, dense), []);
        let experts = SelftestExtent { pairs: &[Pair::Qwen35MoeDflash], ..plan };
        assert_eq!(broken(DeviceChoice::Emulator, 2, experts), []);
    }

    #[test]
    fn all_promises_are_kept_of_a_block_head_on_two_ranks_in_the_emulator() {
        let plan = SelftestExtent { pairs: &[Pair::Dspark], fp8_dtypes: &[], ..QUICK_SHARED };
        assert_eq!(broken(DeviceChoice::Emulator, 2, plan), []);
    }

    #[test]
    #[ignore = "takes minutes in the emulator; `spectune selftest` runs it on a GPU"]
    fn promises_of_latent_attention_are_kept_in_the_emulator() {
        assert_eq!(broken(DeviceChoice::Emulator, 1, SelftestExtent { pairs: &[Pair::DeepSeek], ..QUICK }), []);
    }
}
