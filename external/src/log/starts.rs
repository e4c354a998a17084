//! Servers in one log: those that start one after the other, and those that run at the same time.

use std::collections::HashMap;

use super::{LogInterval, LoggedSettings, ServerLog};
use crate::api::ApiKind;

/// A report and where it is.
pub(super) struct LoggedReport {
    /// The number of its line.
    pub line: usize,
    /// The rank or engine that reports it, within the server.
    pub rank: String,
    /// What it says; its source is not set yet.
    pub interval: LogInterval,
}

/// A server from its start to the next one, while its log is read.
pub(super) struct LoggedStart<State> {
    /// What other programs write before its lines.
    prefix: String,
    /// The configuration that it printed.
    pub settings: LoggedSettings,
    /// What a reader remembers between its lines.
    pub state: State,
    /// The lines of its first and of its last report.
    reports: Option<(usize, usize)>,
}

impl<State> LoggedStart<State> {
    /// Says that a line reports rounds.
    pub fn reports_at(&mut self, line: usize) {
        self.reports = Some((self.reports.map_or(line, |(first, _)| first), line));
    }

    /// Whether both ran at the same time, as engines of the same configuration.
    fn runs_with(&self, other: &Self) -> bool {
        let shape = |settings: &LoggedSettings| {
            (settings.num_steps, settings.topk, settings.verified_rows, settings.max_running, settings.graphs_off)
        };
        let (one, two) = (&self.settings, &other.settings);
        let overlap = self.reports.zip(other.reports).is_some_and(|(one, two)| one.0 <= two.1 && two.0 <= one.1);
        let is_same = one.algorithm == two.algorithm && one.simulated == two.simulated && shape(one) == shape(two);
        overlap && self.prefix != other.prefix && is_same
    }
}

/// The starts of servers in a log.
pub(super) struct LoggedStarts<State> {
    /// The line that is being read.
    pub line: usize,
    all: Vec<LoggedStart<State>>,
    /// The last start with each prefix.
    current: HashMap<String, usize>,
    /// The configuration that was printed last, whatever the prefix.
    printed: LoggedSettings,
}

impl<State> Default for LoggedStarts<State> {
    fn default() -> Self {
        Self { line: 0, all: Vec::new(), current: HashMap::new(), printed: LoggedSettings::default() }
    }
}

impl<State: Default> LoggedStarts<State> {
    /// The server that a line with this prefix is of.
    pub fn current(&mut self, prefix: String) -> &mut LoggedStart<State> {
        let at = match self.current.get(&prefix) {
            Some(at) => *at,
            None => self.add(prefix),
        };
        &mut self.all[at]
    }

    /// The server whose configuration a line prints: a new one if the last one with this prefix has
    /// reported rounds.
    pub fn begin(&mut self, prefix: String) -> &mut LoggedStart<State> {
        let at = match self.current.get(&prefix) {
            Some(at) if self.all[*at].reports.is_none() => *at,
            _ => self.add(prefix),
        };
        &mut self.all[at]
    }

    /// Sets a configuration that was printed, given the one before it, also for servers whose own
    /// is not in the log.
    pub fn configure(&mut self, prefix: String, settings: impl FnOnce(&LoggedSettings) -> LoggedSettings) {
        let start = self.begin(prefix);
        start.settings = settings(&start.settings);
        self.printed = start.settings.clone();
    }

    fn add(&mut self, prefix: String) -> usize {
        let at = self.all.len();
        self.current.insert(prefix.clone(), at);
        self.all.push(LoggedStart { prefix, settings: self.printed.clone(), state: State::default(), reports: None });
        at
    }

    /// The servers with reports, in the order of their starts. Those that run at the same time with
    /// the same configuration are one. `finish` gives the reports of a start, and its number of
    /// requests that were put back.
    pub fn servers(
        self,
        kind: ApiKind,
        mut finish: impl FnMut(&mut LoggedSettings, State) -> (Vec<LoggedReport>, usize),
    ) -> Vec<ServerLog> {
        let mut groups: Vec<Vec<LoggedStart<State>>> = Vec::new();
        for start in self.all.into_iter().filter(|start| start.reports.is_some()) {
            match groups.iter_mut().find(|group| group.iter().any(|other| other.runs_with(&start))) {
                Some(group) => group.push(start),
                None => groups.push(vec![start]),
            }
        }
        groups.into_iter().map(|group| server(kind, group, &mut finish)).collect()
    }
}

fn server<State>(
    kind: ApiKind,
    group: Vec<LoggedStart<State>>,
    finish: &mut impl FnMut(&mut LoggedSettings, State) -> (Vec<LoggedReport>, usize),
) -> ServerLog {
    let mut log = ServerLog { kind, settings: LoggedSettings::default(), intervals: Vec::new(), retractions: 0 };
    let mut reports = Vec::new();
    for (number, mut start) in group.into_iter().enumerate() {
        let (of_start, retractions) = finish(&mut start.settings, start.state);
        log.retractions += retractions;
        reports.extend(of_start.into_iter().map(|report| (number, report)));
        if number == 0 {
            log.settings = start.settings;
        }
    }
    reports.sort_by_key(|(_, report)| report.line);
    let mut sources: HashMap<(usize, String), usize> = HashMap::new();
    for (number, report) in reports {
        let next = sources.len();
        let source = *sources.entry((number, report.rank)).or_insert(next);
        log.intervals.push(LogInterval { source, ..report.interval });
    }
    log
}
