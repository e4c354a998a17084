//! Turns trials into ranked reports.
