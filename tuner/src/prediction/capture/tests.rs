//! Compares with an exhaustive search over all lists, and with cases computed by hand.

use proptest::prelude::*;

use super::*;

fn demand(rounds: &[u64], times: &[f64]) -> Demand {
    let time = |size: usize| Ok(times[size - 1]);
    Demand::new(&[&[0], rounds].concat(), times.len(), time).expect("it is one")
}

/// The least time over all lists with at most this many sizes that end with the largest.
fn brute_force(demand: &Demand, graphs: usize) -> f64 {
    let largest = demand.largest();
    let lists = (0_u32..1 << (largest - 1)).filter(|mask| (mask.count_ones() as usize) < graphs);
    let cost = |mask: u32| {
        let sizes: Vec<usize> = (1..=largest).filter(|size| *size == largest || mask >> (size - 1) & 1 == 1).collect();
        assess(demand, &sizes).expected_ms
    };
    lists.map(cost).fold(f64::INFINITY, f64::min)
}

proptest! {
    #[test]
    fn no_list_is_better(
        batches in prop::collection::vec((0_u64..50, 0.1_f64..10.0), 1..=10), rising: bool, graphs in 1_usize..12,
    ) {
        let (mut rounds, mut times): (Vec<u64>, Vec<f64>) = batches.into_iter().unzip();
        rounds[0] += 1;
        if rising {
            times.sort_by(f64::total_cmp);
        }
        let demand = demand(&rounds, &times);
        let lists = optimize(&demand, &CaptureLimits { graphs, memory: None }).expect("it is possible");
        prop_assert_eq!(lists.len(), graphs.min(times.len()));
        for (at, list) in lists.iter().enumerate() {
            prop_assert!(list.sizes.len() <= at + 1 && list.sizes.last() == Some(&times.len()));
            prop_assert!(list.sizes.windows(2).all(|pair| pair[0] < pair[1]));
            let best = brute_force(&demand, at + 1);
            prop_assert!((list.expected_ms - best).abs() <= 1e-9 * best, "{list:?} against {best}");
            prop_assert_eq!(list, &assess(&demand, &list.sizes));
            prop_assert_eq!(list.uncovered_rounds, 0);
        }
    }
}

#[test]
fn figures_are_those_by_hand() {
    // 10 rounds of 1, 1 of 3, 5 of 4, in times 1, 2, 3 and 4.
    let demand = demand(&[10, 0, 1, 5], &[1.0, 2.0, 3.0, 4.0]);
    let lists = optimize(&demand, &CaptureLimits { graphs: 9, memory: None }).expect("it is possible");
    assert_eq!(
        lists.iter().map(|list| list.sizes.clone()).collect::<Vec<_>>(),
        [vec![4], vec![1, 4], vec![1, 3, 4], vec![1, 3, 4]]
    );
    assert_eq!(lists.iter().map(|list| list.expected_ms).collect::<Vec<_>>(), [64.0, 34.0, 33.0, 33.0]);
    // 10 + 3 + 20 requests in 40 + 4 + 20 places.
    assert!((lists[0].padding_percent - 100.0 * 31.0 / 64.0).abs() < 1e-9);
    assert_eq!(lists[2].padding_percent, 0.0);
    let short = assess(&demand, &[2, 0, 2]);
    assert_eq!((short.sizes.as_slice(), short.expected_ms, short.uncovered_rounds), (&[2][..], 43.0, 6));
    assert_eq!(assess(&demand, &[1, 8]).sizes, [1, 4]);
}

#[test]
fn limits_hold() {
    let demand = demand(&[1, 1, 1, 1, 1], &[1.0, 2.0, 3.0, 4.0, 5.0]);
    let graphs = |graphs, memory| {
        let memory = memory_of(memory);
        optimize(&demand, &CaptureLimits { graphs, memory }).map(|lists| lists.len())
    };
    fn memory_of(memory: Option<(f64, f64)>) -> Option<GraphMemory> {
        memory.map(|(total_mib, each_mib)| GraphMemory { total_mib, each_mib })
    }
    assert_eq!(graphs(4, None).ok(), Some(4));
    assert_eq!(graphs(40, None).ok(), Some(5));
    assert_eq!(graphs(4, Some((100.0, 45.0))).ok(), Some(2));
    assert_eq!(graphs(4, Some((100.0, 0.0))).ok(), Some(4));
    assert!(graphs(4, Some((40.0, 45.0))).is_err());
    assert!(graphs(0, None).is_err());
}

#[test]
fn a_demand_must_be_one() {
    let error = |rounds: &[u64], largest, time: f64| {
        Demand::new(rounds, largest, |_| Ok(time)).expect_err("it is refused").to_string()
    };
    assert!(error(&[], 4, 1.0).contains("no round"));
    assert!(error(&[7, 0, 0], 4, 1.0).contains("no round"));
    assert!(error(&[0, 0, 0, 2], 2, 1.0).contains("rounds of 3"));
    for time in [0.0, f64::NAN, f64::INFINITY] {
        assert!(error(&[0, 1], 1, time).contains("above 0"));
    }
    let refused = Demand::new(&[0, 1], 1, |_| Err(TunerError::Configuration("extrapolated".into())));
    assert!(refused.is_err());
}

#[test]
fn known_lists_end_where_they_should() {
    for largest in [1, 5, 20, 64, 100, 256] {
        for (name, sizes) in known_lists(largest) {
            assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]), "{name} {largest}: {sizes:?}");
            let end = if name == "slime dense" { largest.min(160) } else { largest };
            assert_eq!(sizes.last(), Some(&end), "{name} {largest}");
        }
    }
    let [_, (_, wide), (_, dense)] = known_lists(300);
    assert_eq!((wide.len(), wide[4], wide[5], wide.last()), (35, 16, 24, Some(&256)));
    assert_eq!((dense.len(), dense[31], dense[32], dense[36], dense.last()), (42, 32, 40, 80, Some(&160)));
}
