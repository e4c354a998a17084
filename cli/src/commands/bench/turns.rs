//! Turns of what `bench` compares. Repeats of one thing right after each other would meet another
//! state of the machine (clocks, temperature, other work) than those of the next one.

use std::{fmt::Write, sync::atomic::Ordering};

use crate::{exit::Exit, interrupt, terminal};

/// One turn of all that is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BenchTurn {
    /// Places of what is measured, in the order in which it runs.
    pub order: Vec<usize>,
    /// Repeats of each.
    pub repeats: usize,
    /// Whether all repeats have run after it; then it is in the order of the command line.
    pub is_last: bool,
    /// Which turn it is, for progress; empty for the only one.
    pub words: String,
}

/// The turns of some measurements: each repeat runs all of them, in reverse order every second
/// time. One alone runs all its repeats in one turn.
pub fn turns(measurements: usize, repeats: usize) -> Vec<BenchTurn> {
    let turns = if measurements > 1 { repeats } else { 1 };
    let turn = |at: usize| {
        let left = turns - 1 - at;
        let mut order: Vec<usize> = (0..measurements).collect();
        if left % 2 == 1 {
            order.reverse();
        }
        let words = if turns > 1 { format!(", repeat {} of {turns}", at + 1) } else { String::new() };
        BenchTurn { order, repeats: repeats.div_ceil(turns.max(1)), is_last: left == 0, words }
    };
    (0..turns).map(turn).collect()
}

/// Measurements that take turns.
pub trait Turned {
    /// Number of measurements.
    fn count(&self) -> usize;
    /// Repeats of one that have run.
    fn ran(&self, at: usize) -> usize;
    /// Runs one for a turn.
    fn run(&mut self, at: usize, turn: &BenchTurn) -> anyhow::Result<()>;
    /// Prints the line of one, from the repeats that have run.
    fn print(&mut self, at: usize) -> anyhow::Result<()>;
}

/// Runs all turns; lines are printed in the last one. After an interrupt or an error the lines of
/// what has run by then are printed.
///
/// # Errors
/// What a measurement fails with.
pub fn take(measured: &mut impl Turned, repeats: usize) -> anyhow::Result<Exit> {
    let interrupted = interrupt::polled();
    take_until(measured, repeats, &|| interrupted.load(Ordering::Relaxed))
}

fn take_until(measured: &mut impl Turned, repeats: usize, ends: &dyn Fn() -> bool) -> anyhow::Result<Exit> {
    let mut printed = vec![false; measured.count()];
    for turn in turns(measured.count(), repeats) {
        for &at in &turn.order {
            if ends() {
                print_rest(measured, &printed, repeats)?;
                return Ok(Exit::Interrupted);
            }
            if let Err(error) = measured.run(at, &turn) {
                // Its own error is what the user has to know of.
                drop(print_rest(measured, &printed, repeats));
                return Err(error);
            }
            if turn.is_last {
                measured.print(at)?;
                printed[at] = true;
            }
        }
    }
    Ok(Exit::Fine)
}

/// Prints what has run and was not printed.
fn print_rest(measured: &mut impl Turned, printed: &[bool], repeats: usize) -> anyhow::Result<()> {
    let left: Vec<usize> = (0..printed.len()).filter(|at| !printed[*at] && measured.ran(*at) > 0).collect();
    for at in &left {
        measured.print(*at)?;
    }
    let fewer: Vec<String> = left.iter().map(|at| measured.ran(*at).to_string()).collect();
    let missing = (0..printed.len()).filter(|at| measured.ran(*at) == 0).count();
    let mut words = String::from("ended before all repeats were measured");
    if !fewer.is_empty() {
        let _ = write!(words, ": the last {} lines have {} of {repeats} repeats", fewer.len(), fewer.join(", "));
    }
    if missing > 0 {
        let _ = write!(words, "; without a repeat: {missing} of {}", printed.len());
    }
    terminal::note(&words);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Measurements that note what they do; the one at a place fails.
    struct Noted {
        ran: Vec<usize>,
        lines: Vec<(usize, usize)>,
        fails: Option<usize>,
    }

    impl Turned for Noted {
        fn count(&self) -> usize {
            self.ran.len()
        }

        fn ran(&self, at: usize) -> usize {
            self.ran[at]
        }

        fn run(&mut self, at: usize, turn: &BenchTurn) -> anyhow::Result<()> {
            anyhow::ensure!(self.fails != Some(at), "it does not fit");
            self.ran[at] += turn.repeats;
            Ok(())
        }

        fn print(&mut self, at: usize) -> anyhow::Result<()> {
            self.lines.push((at, self.ran[at]));
            Ok(())
        }
    }

    #[test]
    fn an_interrupt_or_an_error_keeps_the_lines_of_what_has_run() {
        let noted = |fails| Noted { ran: vec![0; 3], lines: Vec::new(), fails };
        let mut all = noted(None);
        assert_eq!(take_until(&mut all, 3, &|| false).expect("all run"), Exit::Fine);
        assert_eq!(all.lines, [(0, 3), (1, 3), (2, 3)]);
        let (mut cut, left) = (noted(None), Cell::new(5_usize));
        let ends = || left.replace(left.get().saturating_sub(1)) == 0;
        assert_eq!(take_until(&mut cut, 3, &ends).expect("it ends early"), Exit::Interrupted);
        assert_eq!(cut.lines, [(0, 1), (1, 2), (2, 2)], "the second turn has reverse order");
        let mut wrong = noted(Some(2));
        assert!(take_until(&mut wrong, 3, &|| false).is_err());
        assert_eq!(wrong.lines, [(0, 1), (1, 1)]);
    }

    #[test]
    fn repeats_take_turns_in_alternating_order_and_the_last_one_is_as_given() {
        let orders = |measurements, repeats| -> Vec<Vec<usize>> {
            turns(measurements, repeats).into_iter().map(|turn| turn.order).collect()
        };
        assert_eq!(orders(3, 3), [[0, 1, 2], [2, 1, 0], [0, 1, 2]]);
        assert_eq!(orders(2, 4), [[1, 0], [0, 1], [1, 0], [0, 1]]);
        let all = turns(3, 3);
        assert!(all.iter().all(|turn| turn.repeats == 1));
        assert_eq!(all.iter().filter(|turn| turn.is_last).count(), 1);
        assert_eq!((all[2].is_last, all[1].words.as_str()), (true, ", repeat 2 of 3"));
        let alone = BenchTurn { order: vec![0], repeats: 5, is_last: true, words: String::new() };
        assert_eq!(turns(1, 5), [alone]);
    }
}
