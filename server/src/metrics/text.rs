//! The two text formats of Prometheus.

use std::fmt;

use prometheus_client::{encoding::text, registry::Registry};

/// Content type and text of a registry: OpenMetrics, or the older format for clients that do not
/// request it.
///
/// # Errors
/// When a metric cannot be written.
pub fn encode(registry: &Registry, open_metrics: bool) -> Result<(&'static str, String), fmt::Error> {
    let mut page = String::new();
    text::encode(&mut page, registry)?;
    if open_metrics {
        return Ok(("application/openmetrics-text; version=1.0.0; charset=utf-8", page));
    }
    Ok(("text/plain; version=0.0.4; charset=utf-8", older(&page)))
}

/// Converts to the older format, which includes `_total` in a counter's name and has no end mark.
fn older(page: &str) -> String {
    let counters: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut older = String::with_capacity(page.len() + 64 * counters.len());
    // In OpenMetrics a counter's description has its name without `_total`; the older format needs
    // it with.
    for line in page.lines().filter(|line| *line != "# EOF") {
        let described = line.strip_prefix("# ").and_then(|rest| rest.split_once(' '));
        match described.and_then(|(what, rest)| Some((what, rest.split_once(' ')?))) {
            Some((what, (name, rest))) if counters.contains(&name) => {
                older.push_str(&format!("# {what} {name}_total {rest}\n"));
            }
            _ => {
                older.push_str(line);
                older.push('\n');
            }
        }
    }
    older
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::{counter::Counter, gauge::Gauge};

    use super::*;

    #[test]
    fn both_formats_name_a_counter_as_their_readers_expect() {
        let mut registry = Registry::default();
        registry.register("eggs", "Laid", Counter::<u64>::default());
        registry.register("hens", "Here", Gauge::<i64>::default());
        let (_, open) = encode(&registry, true).expect("it is written");
        assert_eq!(
            open,
            "# HELP eggs Laid.\n# TYPE eggs counter\neggs_total 0\n# HELP hens Here.\n# TYPE hens gauge\nhens 0\n# EOF\n"
        );
        let (_, older) = encode(&registry, false).expect("it is written");
        assert_eq!(
            older,
            "# HELP eggs_total Laid.\n# TYPE eggs_total counter\neggs_total 0\n# HELP hens Here.\n# TYPE hens gauge\nhens 0\n"
        );
    }
}
