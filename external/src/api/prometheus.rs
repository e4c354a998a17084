//! Sums of series from Prometheus' text format.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Labels of SGLang's series that tell ranks apart which work on the same requests: each of them
/// reports the same (`--enable-metrics-for-all-schedulers`).
const SAME_REQUESTS: [&str; 3] = ["tp_rank", "pp_rank", "moe_ep_rank"];
/// The label by which SGLang tells priorities apart (`--enable-priority-scheduling`).
const PRIORITY: &str = "priority";

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

    /// The sum of a metric's series; `None` if there is no series. Of ranks that work on the same
    /// requests one counts.
    pub fn get(&self, name: &str) -> Option<f64> {
        Some(self.each(name, |_| true)?.values().sum())
    }

    /// The same of a gauge of SGLang that counts requests: its series without a priority is the
    /// total of the others.
    pub fn total(&self, name: &str) -> Option<f64> {
        Some(self.totals(name)?.values().sum())
    }

    /// The mean of a gauge over the ranks that run requests by another gauge, over all if none
    /// does; `None` if there is no series.
    pub fn mean_of_running(&self, name: &str, running: &str) -> Option<f64> {
        let values = self.totals(name)?;
        let running = self.totals(running).unwrap_or_default();
        let runs = |rank: &String| running.get(rank).is_some_and(|requests| *requests > 0.0);
        let of_running: Vec<f64> = values.iter().filter(|(rank, _)| runs(rank)).map(|(_, value)| *value).collect();
        let counted = if of_running.is_empty() { values.into_values().collect() } else { of_running };
        (!counted.is_empty()).then(|| counted.iter().sum::<f64>() / counted.len() as f64)
    }

    /// The largest value of a metric's series; `None` if there is no series.
    pub fn largest(&self, name: &str) -> Option<f64> {
        self.0.get(name)?.iter().map(|(_, value)| *value).reduce(f64::max)
    }

    /// The sum of a metric's series in which a label has this value; `None` if there is no such
    /// series.
    pub fn with_label(&self, name: &str, label: &str, value: &str) -> Option<f64> {
        Some(self.each(name, |labels| label_of(labels, label).as_deref() == Some(value))?.values().sum())
    }

    /// Whether there is a metric whose name begins so.
    pub fn has_any(&self, start: &str) -> bool {
        self.0.keys().any(|name| name.starts_with(start))
    }

    /// The totals of a gauge by data-parallel rank.
    fn totals(&self, name: &str) -> Option<BTreeMap<String, f64>> {
        let is_total = |labels: &str| label_of(labels, PRIORITY).is_some_and(|priority| priority.is_empty());
        self.each(name, is_total).or_else(|| self.each(name, |_| true))
    }

    /// The values of those of a metric's series whose labels are kept, by the labels without those
    /// of ranks that work on the same requests; `None` if there is none.
    fn each(&self, name: &str, is_kept: impl Fn(&str) -> bool) -> Option<BTreeMap<String, f64>> {
        let mut values = BTreeMap::new();
        for (labels, value) in self.0.get(name)?.iter().filter(|(labels, _)| is_kept(labels)) {
            let rank = SAME_REQUESTS.iter().fold(labels.clone(), |labels, label| without(&labels, label));
            // Ranks report one after the other.
            values.entry(rank).and_modify(|most: &mut f64| *most = most.max(*value)).or_insert(*value);
        }
        (!values.is_empty()).then_some(values)
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
    let at = place_of(labels, label)? + label.len() + 2;
    labels[at..].split('"').next().map(str::to_owned)
}

/// Labels without one of them, whose value has no quotes.
fn without(labels: &str, label: &str) -> String {
    let Some(start) = place_of(labels, label) else { return labels.to_owned() };
    let value = start + label.len() + 2;
    let end = labels[value..].find('"').map_or(labels.len(), |length| value + length + 1);
    let rest = labels[end..].trim_start_matches([',', ' ']);
    let kept = &labels[..start];
    // The last label leaves its comma behind.
    if rest.is_empty() { kept.trim_end_matches([',', ' ']).to_owned() } else { format!("{kept}{rest}") }
}

/// Where a label begins among labels.
fn place_of(labels: &str, label: &str) -> Option<usize> {
    let is_whole = |at: &usize| *at == 0 || labels[..*at].ends_with([',', ' ']);
    // The name of another label may end with the same letters.
    labels.match_indices(&format!("{label}=\"")).map(|(at, _)| at).find(is_whole)
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
    fn ranks_that_work_on_the_same_requests_count_once() {
        let page = "g{dp_rank=\"0\",model_name=\"m\",moe_ep_rank=\"0\",pp_rank=\"0\",tp_rank=\"0\"} 8\n\
                    g{dp_rank=\"0\",model_name=\"m\",moe_ep_rank=\"1\",pp_rank=\"0\",tp_rank=\"1\"} 7\n\
                    g{dp_rank=\"1\",model_name=\"m\",moe_ep_rank=\"2\",pp_rank=\"0\",tp_rank=\"2\"} 5\n\
                    c{mode=\"decode\",tp_rank=\"0\"} 10\nc{mode=\"decode\",tp_rank=\"1\"} 10\nc{mode=\"x\",tp_rank=\"0\"} 1\n";
        let metrics = Metrics::parse(page);
        assert_eq!((metrics.get("g"), metrics.total("g"), metrics.largest("g")), (Some(13.0), Some(13.0), Some(8.0)));
        assert_eq!(
            (metrics.with_label("c", "mode", "decode"), metrics.with_label("c", "mode", "y")),
            (Some(10.0), None)
        );
        assert!(metrics.has_any("g") && !metrics.has_any("vllm:"));
    }

    #[test]
    fn the_series_without_a_priority_is_the_total_of_a_gauge_and_none_of_a_counter() {
        let page = "g{priority=\"\",tp_rank=\"0\"} 8\ng{priority=\"0\",tp_rank=\"0\"} 3\ng{priority=\"1\",tp_rank=\"0\"} 5\n\
                    c{priority=\"\"} 100\nc{priority=\"1\"} 50\n";
        let metrics = Metrics::parse(page);
        assert_eq!((metrics.total("g"), metrics.get("c"), metrics.total("d")), (Some(8.0), Some(150.0), None));
    }

    #[test]
    fn gauges_that_are_means_are_not_summed() {
        let page = "r{dp_rank=\"0\",tp_rank=\"0\"} 4\nr{dp_rank=\"1\",tp_rank=\"1\"} 2\nr{dp_rank=\"2\",tp_rank=\"2\"} 0\n\
                    a{dp_rank=\"0\",tp_rank=\"0\"} 2\na{dp_rank=\"1\",tp_rank=\"1\"} 3\na{dp_rank=\"2\",tp_rank=\"2\"} 1\n";
        let metrics = Metrics::parse(page);
        assert_eq!(metrics.mean_of_running("a", "r"), Some(2.5));
        assert_eq!((metrics.mean_of_running("a", "none"), metrics.mean_of_running("none", "r")), (Some(2.0), None));
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
