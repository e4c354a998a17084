//! Turns of what `bench` compares. Repeats of one thing right after each other would meet another
//! state of the machine (clocks, temperature, other work) than those of the next one.

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

#[cfg(test)]
mod tests {
    use super::*;

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
