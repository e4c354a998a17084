//! The dynamic program: the best list of k sizes that ends with g extends the best list of k − 1
//! sizes that ends below g.

/// For k = 1..=most, the list of exactly k sizes, ending with the largest, that minimises Σ
/// rounds(b) · time(next size ≥ b). Entry 0 of both slices is ignored; times need not increase.
/// `most` is at most the largest size.
pub fn best_lists(rounds: &[u64], round_ms: &[f64], most: usize) -> Vec<Vec<usize>> {
    let largest = rounds.len().min(round_ms.len()).saturating_sub(1);
    // Number of rounds with at most this batch.
    let mut up_to = vec![0; largest + 1];
    for batch in 1..=largest {
        up_to[batch] = up_to[batch - 1] + rounds[batch];
    }
    // Rounds of batches above `before`, run at `size`.
    let cost = |before: usize, size: usize| (up_to[size] - up_to[before]) as f64 * round_ms[size];
    let mut best: Vec<f64> = (0..=largest).map(|size| cost(0, size)).collect();
    // For each number of sizes after the first and each last size: the size before it.
    let mut before: Vec<Vec<usize>> = Vec::new();
    let mut lists = Vec::new();
    for count in 1..=most {
        if count > 1 {
            let mut extended = vec![f64::INFINITY; largest + 1];
            let mut from = vec![0; largest + 1];
            for size in count..=largest {
                let total = |last: &usize| best[*last] + cost(*last, size);
                let last = (count - 1..size).min_by(|one, other| total(one).total_cmp(&total(other)));
                if let Some(last) = last {
                    (extended[size], from[size]) = (total(&last), last);
                }
            }
            best = extended;
            before.push(from);
        }
        // The last size is the largest batch: no list may leave a batch without a graph.
        let mut sizes = vec![largest];
        let mut last = largest;
        for from in before.iter().rev() {
            last = from[last];
            sizes.push(last);
        }
        sizes.reverse();
        lists.push(sizes);
    }
    lists
}
