//! Tables of an engine's model classes by version, generated from wheels. The first line lists the
//! versions that were read; then each row has a class and columns of versions, `-` where there is
//! none.

use schemas::version::EngineVersion;

/// A version for each column, of those that have one.
type ClassVersions<const COLUMNS: usize> = [Option<EngineVersion>; COLUMNS];

pub(super) struct ClassTable<const COLUMNS: usize> {
    /// Versions that were read, in order.
    read: Vec<EngineVersion>,
    rows: Vec<(&'static str, ClassVersions<COLUMNS>)>,
}

impl<const COLUMNS: usize> ClassTable<COLUMNS> {
    pub(super) fn from_text(text: &'static str) -> Self {
        let read = text.lines().next().and_then(|line| line.strip_prefix("# read from ")).unwrap_or_default();
        let row = |line: &'static str| {
            let mut columns = line.split('\t');
            let class = columns.next().filter(|class| !class.starts_with('#'))?;
            Some((class, std::array::from_fn(|_| columns.next().and_then(|text| text.parse().ok()))))
        };
        Self {
            read: read.split(", ").filter_map(|text| text.parse().ok()).collect(),
            rows: text.lines().filter_map(row).collect(),
        }
    }

    /// The columns of a class.
    pub(super) fn class(&self, class: &str) -> Option<ClassVersions<COLUMNS>> {
        self.rows.iter().find(|(name, _)| *name == class).map(|(_, versions)| *versions)
    }

    /// The first version that was read from this one on; `None` outside of those that were read,
    /// where nothing is known.
    pub(super) fn next_read(&self, version: EngineVersion) -> Option<EngineVersion> {
        self.read.first().filter(|first| **first <= version)?;
        self.read.iter().find(|read| version <= **read).copied()
    }

    /// Checks that all of a text has been read: more versions than `least`, and every row, whose
    /// versions in the columns `since` are among those that were read.
    #[cfg(test)]
    pub(super) fn check(&self, text: &str, least: usize, since: std::ops::Range<usize>) {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(self.rows.len(), lines.clone().count());
        assert!(self.read.windows(2).all(|pair| pair[0] < pair[1]) && self.read.len() > least, "{:?}", self.read);
        for ((_, versions), line) in self.rows.iter().zip(lines) {
            let columns: Vec<&str> = line.split('\t').collect();
            assert_eq!(columns.len(), 1 + COLUMNS, "{line}");
            for (version, column) in versions.iter().zip(&columns[1..]) {
                assert_eq!(version.is_none(), *column == "-", "{line}");
            }
            assert!(versions[since.clone()].iter().flatten().all(|version| self.read.contains(version)), "{line}");
        }
    }
}
