//! Versions at which an engine's behaviour changed.

use schemas::version::EngineVersion;

/// A change of behaviour: between two versions whose sources were read.
#[derive(Clone, Copy)]
pub(super) struct Edge {
    last_before: EngineVersion,
    first_after: EngineVersion,
}

/// The side of a change on which a version is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Before,
    /// Between the two versions read, so unknown.
    Between,
    After,
}

impl Edge {
    pub const fn new(last_before: EngineVersion, first_after: EngineVersion) -> Self {
        Self { last_before, first_after }
    }

    pub fn side(self, version: EngineVersion) -> Side {
        if version <= self.last_before {
            Side::Before
        } else if version < self.first_after {
            Side::Between
        } else {
            Side::After
        }
    }

    /// The verb of a statement about a version before the change: a careful one for a version of
    /// which it is not known.
    pub fn says<'a>(self, version: EngineVersion, known: &'a str, unknown: &'a str) -> &'a str {
        if self.side(version) == Side::Between { unknown } else { known }
    }

    /// For a version between the two: a note that its behaviour is unknown, and why.
    pub fn doubt(self, version: EngineVersion) -> Option<String> {
        (self.side(version) == Side::Between).then(|| {
            format!(
                "this changed between sglang {} and {}; on which side {version} lies is not known",
                self.last_before, self.first_after
            )
        })
    }
}

pub(super) const V0_4_7: EngineVersion = EngineVersion::new(0, 4, 7);
pub(super) const V0_4_10: EngineVersion = EngineVersion::new(0, 4, 10);
pub(super) const V0_5_0: EngineVersion = EngineVersion::new(0, 5, 0);
pub(super) const V0_5_1_POST3: EngineVersion = EngineVersion::new(0, 5, 1).post(3);
pub(super) const V0_5_2: EngineVersion = EngineVersion::new(0, 5, 2);
pub(super) const V0_5_3: EngineVersion = EngineVersion::new(0, 5, 3);
pub(super) const V0_5_4: EngineVersion = EngineVersion::new(0, 5, 4);
pub(super) const V0_5_5: EngineVersion = EngineVersion::new(0, 5, 5);
pub(super) const V0_5_6: EngineVersion = EngineVersion::new(0, 5, 6);
pub(super) const V0_5_8: EngineVersion = EngineVersion::new(0, 5, 8);
pub(super) const V0_5_9: EngineVersion = EngineVersion::new(0, 5, 9);
pub(super) const V0_5_10: EngineVersion = EngineVersion::new(0, 5, 10);
pub(super) const V0_5_11: EngineVersion = EngineVersion::new(0, 5, 11);
/// The plain release; `V0_5_12` is its post-release.
pub(super) const V0_5_12_0: EngineVersion = EngineVersion::new(0, 5, 12);
pub(super) const V0_5_12: EngineVersion = EngineVersion::new(0, 5, 12).post(1);
pub(super) const V0_5_13: EngineVersion = EngineVersion::new(0, 5, 13);
pub(super) const V0_5_14: EngineVersion = EngineVersion::new(0, 5, 14);
pub(super) const V0_5_15: EngineVersion = EngineVersion::new(0, 5, 15).post(1);
pub(super) const V0_5_16: EngineVersion = EngineVersion::new(0, 5, 16);
pub(super) const V0_5_17: EngineVersion = EngineVersion::new(0, 5, 17);
pub(super) const V0_5_18: EngineVersion = EngineVersion::new(0, 5, 18);
pub(super) const V0_5_19: EngineVersion = EngineVersion::new(0, 5, 19);
pub(super) const V0_5_20: EngineVersion = EngineVersion::new(0, 5, 20);
pub(super) const V0_5_21: EngineVersion = EngineVersion::new(0, 5, 21);
pub(super) const V0_5_22: EngineVersion = EngineVersion::new(0, 5, 22);
pub(super) const V0_5_23: EngineVersion = EngineVersion::new(0, 5, 23);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between_two_versions_read_is_not_known() {
        let edge = Edge::new(V0_5_2, V0_5_6);
        assert_eq!(edge.side(V0_5_2), Side::Before);
        assert_eq!(edge.side(EngineVersion::new(0, 5, 4)), Side::Between);
        assert_eq!(edge.side(V0_5_6), Side::After);
        assert!(edge.doubt(EngineVersion::new(0, 5, 4)).is_some_and(|doubt| doubt.contains("0.5.2 and 0.5.6")));
        assert_eq!(edge.doubt(V0_5_6), None);
    }
}
