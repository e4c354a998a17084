//! How many of the drafted nodes are verified.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::{ShapeError, TreeShape};

/// Rows that the target verifies per request of a batch on average, roots included, where these are
/// fewer than the nodes of the trees. The likeliest nodes of all requests together are verified,
/// whichever request they belong to.
///
/// In hundredths, so that equal texts are equal budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct RowBudget(u32);

impl RowBudget {
    /// The rows of a batch of this many requests: at least their roots.
    pub fn rows(self, batch: usize) -> usize {
        let hundredths = (batch as u128) * u128::from(self.0);
        usize::try_from(hundredths / 100).unwrap_or(usize::MAX).max(batch)
    }
}

impl JsonSchema for RowBudget {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "RowBudget".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        f64::json_schema(generator)
    }
}

impl From<RowBudget> for f64 {
    fn from(budget: RowBudget) -> Self {
        Self::from(budget.0) / 100.0
    }
}

impl TryFrom<f64> for RowBudget {
    type Error = ShapeError;

    fn try_from(rows: f64) -> Result<Self, ShapeError> {
        let hundredths = (rows * 100.0).round();
        let is_exact = (hundredths / 100.0 - rows).abs() < 1e-9;
        // One row per request is that of the root, so nothing would be verified.
        if is_exact && hundredths > 100.0 && hundredths < 100.0 * TreeShape::LARGEST as f64 {
            Ok(Self(hundredths as u32))
        } else {
            Err(ShapeError::Budget { most: TreeShape::LARGEST })
        }
    }
}

impl fmt::Display for RowBudget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", f64::from(*self))
    }
}

impl FromStr for RowBudget {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<Self, ShapeError> {
        text.trim().parse::<f64>().map_err(|_| ShapeError::Syntax)?.try_into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_counts_the_rows_of_a_batch_with_its_roots() {
        let budget: RowBudget = "2.5".parse().expect("a budget");
        assert_eq!([1, 3, 64].map(|batch| budget.rows(batch)), [2, 7, 160]);
        assert_eq!("1.01".parse().map(|budget: RowBudget| budget.rows(8)), Ok(8));
        assert_eq!(budget.rows(usize::MAX), usize::MAX);
        assert_eq!(serde_json::to_string(&budget).ok().as_deref(), Some("2.5"));
        assert_eq!(serde_json::from_str::<RowBudget>("2.50").ok(), Some(budget));
    }

    #[test]
    fn what_is_no_budget_is_refused() {
        for text in ["", "x", "1", "1.0", "0.5", "-2", "NaN", "inf", "1e300", "1024", "2.505"] {
            assert!(text.parse::<RowBudget>().is_err(), "{text}");
        }
        assert!(serde_json::from_str::<RowBudget>("1").is_err());
    }
}
