//! The report of a simulation.

use tuner::forecast::plan::SimulationReport;

/// Policies that a report shows, besides no speculation and the chosen one.
const SHOWN: usize = 12;

/// The result for a reader.
pub fn report(found: &SimulationReport) -> String {
    let SimulationReport { study, .. } = found;
    let mut text = format!("simulated: {}, median of {} draws\n\n", found.objective, study.draws);
    let retracts = study.policies.iter().any(|policy| policy.retractions > 0.0);
    let heading = if retracts { "  retractions" } else { "" };
    text += &format!("policy                seconds{heading}  speed-up  quartiles\n");
    let mut order: Vec<usize> = (0..study.policies.len()).collect();
    order.sort_by(|a, b| study.policies[*a].judged_on_s.total_cmp(&study.policies[*b].judged_on_s));
    let shown = |(place, at): &(usize, &usize)| *place < SHOWN || **at == 0 || **at == study.chosen;
    for (_, at) in order.iter().enumerate().filter(shown) {
        let (at, policy) = (*at, &study.policies[*at]);
        let [median, low, high] = policy.speedup;
        let mark = if at == study.chosen { "  chosen" } else { "" };
        let retractions = if retracts { format!("  {:>11.1}", policy.retractions) } else { String::new() };
        text += &format!(
            "{:<20} {:>8.2}{retractions}  {median:>7.3}x  {low:.3} to {high:.3}{mark}\n",
            policy.name, policy.judged_on_s
        );
    }
    if retracts {
        text += "retractions: requests put back because the KV cache was full, mean per draw\n";
    }
    let hidden = order.iter().enumerate().filter(|one| !shown(one)).count();
    if hidden > 0 {
        text += &format!("{hidden} slower policies are not shown; --json has them all\n");
    }
    text += &format!("\nregret of the choice on other draws: {:.2}%\n", study.regret * 100.0);
    if let Some(table) = found.table.as_ref().filter(|table| table.len() > 1) {
        text += "\nbatch up to  context up to  tree\n";
        for row in table {
            let context = row.context.map_or_else(|| "any".to_owned(), |context| format!("{context:.0}"));
            let shape = if row.shape.is_off() { "none".to_owned() } else { row.shape.to_string() };
            text += &format!("{:>11}  {context:>13}  {shape}\n", row.batch);
        }
    }
    text += &buckets(found);
    text += "\nbatch over time under the chosen policy, one draw\n";
    text += " from s    batch  speculating  accept length  rows per request\n";
    for slice in &found.timeline {
        text += &format!(
            "{:>7.2} {:>8.1} {:>11.0}% {:>14.2} {:>17.2}\n",
            slice.from_s,
            slice.batch,
            slice.speculating * 100.0,
            slice.accept_length,
            slice.rows
        );
    }
    text += &format!("\ntime of steps: {}\n", found.times);
    found.notes.iter().for_each(|note| text += &format!("note: {note}\n"));
    text
}

/// Batches whose round times the table of contexts shows.
const SHOWN_BATCHES: [usize; 3] = [1, 8, 32];

/// Acceptance and round times by context.
fn buckets(found: &SimulationReport) -> String {
    if found.buckets.is_empty() {
        return String::new();
    }
    let mut text = String::from("\ncontext up to  tree        accept length  rounds  ms at batch 1, 8, 32\n");
    for bucket in &found.buckets {
        let context = bucket.context.map_or_else(|| "any".to_owned(), |context| format!("{context:.0}"));
        for one in &bucket.shapes {
            let name = if one.shape.is_off() { "none".to_owned() } else { one.shape.to_string() };
            let rounds = one.rounds.map_or_else(|| "all".to_owned(), |rounds| rounds.to_string());
            let ms = |batch: &usize| {
                let known = one.round_ms.iter().find(|(of, _)| of == batch);
                known.map_or_else(|| "-".to_owned(), |(_, ms)| format!("{ms:.2}"))
            };
            let times = SHOWN_BATCHES.iter().map(ms).collect::<Vec<_>>().join(", ");
            text += &format!("{context:>13}  {name:<10} {:>14.3} {rounds:>7}  {times}\n", one.accept_length);
        }
    }
    text + "rounds: of the trace at these contexts; all: too few there, so the accept length is that of all contexts\n"
}
