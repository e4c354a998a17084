//! Flags of the SGLang server whose adaptive steps are simulated.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use schemas::{engines::NEWEST_SGLANG, version::EngineVersion};
use tuner::forecast::{plan::AdaptiveLaunch, policy::sglang::AdaptiveSettings};

use crate::load_flags;

/// The flags.
#[derive(Debug, clap::Args)]
pub struct AdaptiveFlags {
    /// Version of SGLang whose adaptive steps are simulated. Default: the newest known
    #[arg(long, value_name = "V", conflicts_with = "against")]
    engine_version: Option<EngineVersion>,
    /// The file that SGLang has with --speculative-adaptive-config. Default: the candidates and
    /// settings of its version
    #[arg(long, value_name = "FILE", conflicts_with = "against")]
    speculative_adaptive_config: Option<PathBuf>,
    /// The number of steps with which SGLang is launched. Default: the middle of all candidates
    #[arg(long, value_name = "N", conflicts_with = "against")]
    speculative_num_steps: Option<usize>,
}

impl AdaptiveFlags {
    /// The first of the flags that is given.
    fn given(&self) -> Option<&'static str> {
        let flags = [
            ("--engine-version", self.engine_version.is_some()),
            ("--speculative-adaptive-config", self.speculative_adaptive_config.is_some()),
            ("--speculative-num-steps", self.speculative_num_steps.is_some()),
        ];
        flags.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag))
    }

    /// The file, if one is given.
    pub fn file(&self) -> Option<&Path> {
        self.speculative_adaptive_config.as_deref()
    }

    /// Refuses flags without effect: the policies are those of `--policy`, or all if it is empty.
    pub fn check(&self, policies: &[String], simulates: bool) -> anyhow::Result<()> {
        let Some(flag) = self.given() else { return Ok(()) };
        if !simulates {
            bail!("{flag} has no effect with --export sglang-dspark, which simulates no policy: remove it");
        }
        if !policies.is_empty() && !policies.iter().any(|name| name == "sglang") {
            bail!("{flag} is of the policy sglang, which --policy leaves out: add sglang to it, or remove {flag}");
        }
        Ok(())
    }

    /// The launch that they describe.
    pub fn launch(&self) -> anyhow::Result<AdaptiveLaunch> {
        if self.given().is_none() {
            return Ok(AdaptiveLaunch::default());
        }
        let version = self.engine_version.unwrap_or(NEWEST_SGLANG);
        let of_version = AdaptiveSettings::in_version(version).context("--engine-version")?;
        let (settings, ignored) = match &self.speculative_adaptive_config {
            None => (of_version, Vec::new()),
            Some(path) => AdaptiveSettings::parse(&load_flags::read(path)?, version)
                .with_context(|| format!("--speculative-adaptive-config {} (SGLang {version})", path.display()))?,
        };
        let steps = self.speculative_num_steps;
        AdaptiveLaunch::new(version, settings, ignored, steps).map_err(|reason| match steps {
            Some(steps) => anyhow::anyhow!("--speculative-num-steps {steps} (SGLang {version}): {reason}"),
            None => anyhow::anyhow!("SGLang {version}: {reason}"),
        })
    }
}
