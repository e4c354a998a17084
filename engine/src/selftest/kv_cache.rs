//! Caches in FP8: trees read the rows that they leave in the cache.

use super::{Check, EngineConfiguration, SelftestExtent, models::Pair, models::RandomModels, options, same_output};
use crate::{DeviceChoice, Engine, EngineError, EngineOptions, SamplingParams, spec::CacheFormat};

/// Checks a target with an EAGLE-3 head, both with caches in FP8.
///
/// # Errors
/// When a model cannot be loaded, or the device fails.
pub fn check_kv_cache(
    models: &RandomModels,
    choice: DeviceChoice,
    plan: SelftestExtent,
    pairs: &[Pair],
    report: &mut dyn FnMut(Check),
) -> Result<(), EngineError> {
    let page_size = plan.page_sizes.last().copied().unwrap_or(1);
    let batch = plan.batches.last().copied().unwrap_or(1);
    let pairs = pairs.iter().filter(|pair| **pair == Pair::Eagle3);
    for (pair, dtype) in pairs.flat_map(|pair| plan.fp8_dtypes.iter().map(move |dtype| (pair, dtype))) {
        let setting = EngineConfiguration::new(choice, 1, dtype, *pair, page_size);
        let options = EngineOptions { kv_cache: CacheFormat::Fp8, ..options(models, setting, plan) };
        let mut engine = Engine::load(options)?;
        report(Check {
            name: format!(
                "{pair}, {dtype} and a cache in fp8: greedy output of batch {batch} does not depend on the tree"
            ),
            failure: same_output(&mut engine, plan, &SamplingParams::default(), batch)?,
        });
    }
    Ok(())
}
