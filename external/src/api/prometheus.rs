//! Sums of series from Prometheus' text format.

use std::collections::HashMap;

/// Metrics of a server: the sum of the series of each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics(HashMap<String, f64>);

impl Metrics {
    /// Parses a page. Lines that are not samples are skipped.
    pub fn parse(page: &str) -> Self {
        let mut sums: HashMap<String, f64> = HashMap::new();
        for (name, value) in page.lines().filter_map(sample) {
            *sums.entry(name.to_owned()).or_default() += value;
        }
        Self(sums)
    }

    /// The sum of a metric's series; `None` if there is no series.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }
}

/// Name and value of a line: `name{label="value",…} value [timestamp]`.
fn sample(line: &str) -> Option<(&str, f64)> {
    let line = line.trim();
    if line.starts_with('#') {
        return None;
    }
    let name = line.split(['{', ' ', '\t']).next().filter(|name| !name.is_empty())?;
    // A label's value may contain braces, but a number cannot: the last brace ends the labels.
    let rest = line.rfind('}').map_or(&line[name.len()..], |end| &line[end + 1..]);
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    value.is_finite().then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_a_metric_are_summed() {
        let page = "# HELP a of things\n# TYPE a counter\na{rank=\"0\",model=\"m } n\"} 3\na{rank=\"1\"} 4.5 1700000000\n\
                    b 1e3\nc{x=\"y\"} NaN\nd\n\ne{ broken\n";
        let metrics = Metrics::parse(page);
        assert_eq!((metrics.get("a"), metrics.get("b")), (Some(7.5), Some(1000.0)));
        assert_eq!((metrics.get("c"), metrics.get("d"), metrics.get("e")), (None, None, None));
    }
}
