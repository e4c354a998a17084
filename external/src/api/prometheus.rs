//! Sums of series from Prometheus' text format.

use std::collections::{BTreeSet, HashMap};

/// Metrics of a server: the series of each, as labels and value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics(HashMap<String, Vec<(String, f64)>>);

impl Metrics {
    /// Parses a page. Lines that are not samples are skipped.
    pub fn parse(page: &str) -> Self {
        let mut series: HashMap<String, Vec<(String, f64)>> = HashMap::new();
        for (name, labels, value) in page.lines().filter_map(sample) {
            series.entry(name.to_owned()).or_default().push((labels.to_owned(), value));
        }
        Self(series)
    }

    /// The sum of a metric's series; `None` if there is no series.
    pub fn get(&self, name: &str) -> Option<f64> {
        Some(self.0.get(name)?.iter().map(|(_, value)| value).sum())
    }

    /// The sum of a metric's series in which a label has this value; `None` if there is no such
    /// series.
    pub fn with_label(&self, name: &str, label: &str, value: &str) -> Option<f64> {
        let series = self.0.get(name)?.iter().filter(|(labels, _)| label_of(labels, label).as_deref() == Some(value));
        let values: Vec<f64> = series.map(|(_, value)| *value).collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }

    /// The value of a label of a metric's first series.
    pub fn label(&self, name: &str, label: &str) -> Option<String> {
        label_of(&self.0.get(name)?.first()?.0, label)
    }

    /// Number of different values of a label of a metric; `None` if no series has the label.
    pub fn values_of(&self, name: &str, label: &str) -> Option<usize> {
        let values: BTreeSet<String> =
            self.0.get(name)?.iter().filter_map(|(labels, _)| label_of(labels, label)).collect();
        (!values.is_empty()).then_some(values.len())
    }
}

/// The value of a label among labels such as `engine="0",position="1"`.
fn label_of(labels: &str, label: &str) -> Option<String> {
    let start = format!("{label}=\"");
    let is_whole = |at: &usize| *at == 0 || labels[..*at].ends_with([',', ' ']);
    // The name of another label may end with the same letters.
    let at = labels.match_indices(&start).map(|(at, _)| at).find(is_whole)?;
    labels[at + start.len()..].split('"').next().map(str::to_owned)
}

/// Name, labels and value of a line: `name{label="value",…} value [timestamp]`.
fn sample(line: &str) -> Option<(&str, &str, f64)> {
    let line = line.trim();
    if line.starts_with('#') {
        return None;
    }
    let name = line.split(['{', ' ', '\t']).next().filter(|name| !name.is_empty())?;
    // A label's value may contain braces, but a number cannot: the last brace ends the labels.
    let (labels, rest) = match line.rfind('}').filter(|end| *end > name.len()) {
        Some(end) => (&line[name.len() + 1..end], &line[end + 1..]),
        None => ("", &line[name.len()..]),
    };
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    value.is_finite().then_some((name, labels, value))
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

    #[test]
    fn values_of_a_label_are_counted_once() {
        let page = "k{engine=\"0\",position=\"0\"} 1\nk{engine=\"0\",position=\"1\"} 0\n\
                    k{engine=\"1\",position=\"0\"} 2\nk{compositions=\"9\"} 3\n";
        let metrics = Metrics::parse(page);
        assert_eq!(metrics.values_of("k", "position"), Some(2));
        assert_eq!(metrics.label("k", "engine").as_deref(), Some("0"));
        assert_eq!((metrics.values_of("k", "rank"), metrics.values_of("x", "position")), (None, None));
    }
}
