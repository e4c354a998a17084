//! The model on simulated machines, whose true round times are known.

use engine::{
    spec::{ModelCost, PassCost},
    timing::TimingPoint,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use schemas::tree::{NodeSource, TreeShape};

use super::{
    design::{DesignSpace, design},
    *,
};

/// About an eight-billion-parameter target with an EAGLE-3 head in bfloat16.
const MACHINE: LatencyMachine = LatencyMachine {
    cost: ModelCost {
        target: dense(15_010_000_000),
        target_vocabulary: 1_050_000_000,
        second_pass: None,
        target_cache_row: 131_072,
        target_windowed: None,
        target_state: 0,
        draft: dense(750_000_000),
        draft_extension: dense(100_000_000),
        draft_cache_row: 4096,
        draft_windowed: None,
        element: 2,
        nodes: NodeSource::Beams,
        draft_level: dense(0),
    },
    bandwidth: 4.2e12,
    few_rows: 16,
};

/// 16-bit weights.
const fn dense(bytes: u64) -> PassCost {
    PassCost { bytes, weights: bytes / 2, experts: None }
}

fn space() -> DesignSpace {
    let shapes =
        ["1,1,2", "2,1,3", "3,1,4", "5,1,6", "7,1,8", "2,4,8", "3,4,8", "3,8,16", "5,4,16", "5,8,32", "7,8,60"];
    DesignSpace {
        shapes: shapes.map(|text| text.parse().expect("a shape")).to_vec(),
        batches: vec![1, 2, 4, 8, 16, 24, 32, 48, 64],
        contexts: vec![128, 512, 1024, 2048],
        cache_tokens: None,
    }
}

fn point(timed: &TimingPoint) -> Point {
    Point { shape: timed.shape, batch: timed.batch, context: timed.context as f64 }
}

/// A machine that differs from the model: a hard maximum, a separate step after 16 rows, overhead
/// that grows with the batch, and trees whose cost depends on their candidates.
fn machine_ms(point: &Point) -> f64 {
    let Point { shape, batch, context } = *point;
    let pass = |rows: usize, gigabytes: f64, efficiency: f64| {
        let (memory, arithmetic) = match rows {
            0..=16 => (gigabytes / 4.0, gigabytes * rows as f64 / 90.0),
            _ => (gigabytes / 3.4, gigabytes * rows.next_multiple_of(64) as f64 / 480.0),
        };
        memory.max(arithmetic) / efficiency
    };
    let rows = batch * shape.num_draft_tokens;
    let attention = |rows: usize, row: f64| context * row * (batch as f64 / 2.5e9 + rows as f64 / 4e10);
    let mut ms = 0.25 + 0.002 * batch as f64 + pass(rows, 15.01, 1.0) + attention(rows, 131_072.0);
    if !shape.is_off() {
        let beams = batch * shape.topk;
        let step = 0.06 + pass(beams, 0.75, 0.6) + attention(beams, 4096.0) + 2e-5 * (beams * shape.topk) as f64;
        let rows = batch * shape.longest_path();
        ms += (shape.num_steps - 1) as f64 * step + 0.06 + pass(rows, 0.85, 0.6) + attention(rows, 4096.0);
    }
    ms
}

/// Rounds with one percent of noise; the median of nine of them.
fn timed(truth: impl Fn(&Point) -> f64, points: &[TimingPoint], noise: &mut StdRng) -> Vec<TimedSample> {
    let sample = |timed: &TimingPoint| {
        let point = point(timed);
        let mut normal = || (0..12).map(|_| noise.random_range(0.0..1.0)).sum::<f64>() - 6.0;
        TimedSample::full(point, (0..9).map(|_| truth(&point) * (1.0 + 0.01 * normal())).collect())
    };
    points.iter().map(sample).collect()
}

/// A hundred points between the measured ones.
fn others(noise: &mut StdRng) -> Vec<Point> {
    let shapes = space().shapes;
    let other = |_| Point {
        shape: shapes[noise.random_range(0..shapes.len())],
        batch: noise.random_range(1..=64),
        context: noise.random_range(128.0..2048.0),
    };
    (0..100).map(other).collect()
}

#[test]
fn a_machine_is_learnt_from_thirty_points() {
    let mut noise = StdRng::seed_from_u64(7);
    let samples = timed(machine_ms, &design(&space(), 30), &mut noise);
    let model = RoundModel::fit(MACHINE, &samples).expect("it fits");
    let (mut errors, mut covered) = (Vec::new(), 0);
    for point in others(&mut noise) {
        let (truth, predicted) = (machine_ms(&point), model.predict(&point));
        assert_eq!(predicted.kind, PrefillKind::Interpolated, "{point}");
        assert!(predicted.low < predicted.ms && predicted.ms < predicted.high);
        assert!((model.ms(&point) - predicted.ms).abs() < 1e-12);
        covered += usize::from((predicted.low..=predicted.high).contains(&truth));
        errors.push((predicted.ms / truth - 1.0).abs());
    }
    errors.sort_by(f64::total_cmp);
    let validation = model.cross_validation().expect("thirty points");
    assert!(errors[50] < 0.01 && errors[90] < 0.03 && errors[99] < 0.06, "{:?}", &errors[80..]);
    assert!(covered >= 80, "{covered} of 100 within the interval");
    assert_eq!(validation.points, 30);
    assert!(validation.median <= validation.p90 && validation.p90 <= validation.max);
    assert!(validation.median < 0.015, "{validation:?}");
    // The machine's parameters are recovered where the points determine them.
    let found = model.parameters();
    assert!((found.few_rows_gb_per_s / 4000.0 - 1.0).abs() < 0.15, "{found:?}");
    assert!((found.cache_gb_per_s / 2500.0 - 1.0).abs() < 0.3, "{found:?}");

    let text = model.to_json().expect("it is data");
    let read = RoundModel::from_json(&text).expect("it is a model");
    for point in others(&mut noise) {
        assert!((read.ms(&point) / model.ms(&point) - 1.0).abs() < 1e-9);
    }
    let error = |text: &str| RoundModel::from_json(text).expect_err("it is refused").to_string();
    assert!(error(&text.replace(&format!("\"format\": {FORMAT}"), "\"format\": 1")).contains("format 1"));
    assert!(error("{}").contains("format"));
    let mut cut: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    cut["residuals"]["weights"] = serde_json::json!([1.0]);
    assert!(error(&cut.to_string()).contains("numbers are inconsistent"));
}

/// A processor without a memory floor: only rows cost time, each the same.
#[test]
fn a_machine_that_only_computes_is_learnt_too() {
    let machine = LatencyMachine { bandwidth: 2e10, few_rows: 0, ..MACHINE };
    let truth = |point: &Point| {
        let Point { shape, batch, .. } = *point;
        let extension = if shape.is_off() { 0 } else { batch * shape.longest_path() };
        let drafted = point.draft_rows() * shape.num_steps.saturating_sub(1);
        point.verified_rows() as f64 * 300.0 + drafted as f64 * 15.0 + extension as f64 * 17.0
    };
    let mut noise = StdRng::seed_from_u64(11);
    let model = RoundModel::fit(machine, &timed(truth, &design(&space(), 30), &mut noise)).expect("it fits");
    let mut errors: Vec<f64> =
        others(&mut noise).iter().map(|point| (model.ms(point) / truth(point) - 1.0).abs()).collect();
    errors.sort_by(f64::total_cmp);
    assert!(errors[50] < 0.02 && errors[99] < 0.08, "{:?} {:?}", &errors[45..], model.parameters());
}

/// Rounds of an early version of this engine on an H200, Llama-3.1-8B's shape in bfloat16 (accept
/// length × batch / tokens per second; most of them in docs/notes/performance/steps/README.md,
/// "Steps measured together"): a real machine, and few points.
#[test]
fn an_h200_is_learnt_from_twenty_points() {
    type Row = (&'static str, f64, &'static [(usize, f64)]);
    let rows: [Row; 6] = [
        ("0,1,1", 1.0, &[(1, 236.8), (8, 1630.0), (32, 5142.0), (64, 8962.0)]),
        ("3,1,4", 3.0, &[(1, 564.0), (8, 3649.0), (32, 11_148.0), (64, 16_692.0)]),
        ("5,8,32", 3.0, &[(1, 405.2), (8, 2216.0), (32, 3023.0), (64, 3289.0)]),
        ("1,1,2", 2.0, &[(1, 424.4), (8, 2552.0), (32, 8754.0), (64, 14_705.0)]),
        ("7,1,8", 3.91, &[(1, 553.1), (8, 3737.0)]),
        ("8,10,60", 5.0, &[(1, 563.5), (8, 2274.0)]),
    ];
    let mut samples = Vec::new();
    for (shape, accepted, figures) in rows {
        let shape = shape.parse().expect("a shape");
        samples.extend(figures.iter().map(|(batch, tokens_per_s)| {
            let ms = accepted * *batch as f64 / tokens_per_s * 1e3;
            TimedSample::full(Point { shape, batch: *batch, context: 704.0 }, vec![ms])
        }));
    }
    let model = RoundModel::fit(MACHINE, &samples).expect("it fits");
    let validation = model.cross_validation().expect("twenty points");
    assert!(validation.median < 0.05 && validation.p90 < 0.1, "{validation:?}");
}

/// A library that is up to a tenth faster or slower at some numbers of rows than at their
/// neighbours, as on GPUs: every number of rows of a sweep is timed once, and the rest of the
/// sweep's points are predicted.
#[test]
fn what_a_library_makes_of_a_number_of_rows_is_learnt() {
    let space = DesignSpace { batches: vec![1, 2, 4, 8, 16, 24, 32, 64], contexts: vec![300, 700], ..space() };
    let truth = |point: &Point| {
        let rows = point.verified_rows();
        let quirk = StdRng::seed_from_u64(rows as u64).random_range(-0.1..0.1);
        let linear = if rows <= 16 { 0.0 } else { (15.01 / 3.4_f64).max(15.01 * rows as f64 / 480.0) };
        machine_ms(point) + quirk * linear
    };
    let mut noise = StdRng::seed_from_u64(5);
    let fitted = design(&space, 64);
    let model = RoundModel::fit(MACHINE, &timed(truth, &fitted, &mut noise)).expect("it fits");
    let all = design(&space, usize::MAX);
    let mut errors: Vec<f64> = all
        .iter()
        .filter(|point| !fitted.contains(point))
        .map(|timed| (model.ms(&point(timed)) / truth(&point(timed)) - 1.0).abs())
        .collect();
    errors.sort_by(f64::total_cmp);
    assert_eq!(errors.len(), all.len() - 64);
    assert!(errors[errors.len() / 2] < 0.01 && errors[errors.len() - 1] < 0.05, "{errors:?}");
    // A number of rows that was not timed may deviate, so its prediction is less certain. Far away
    // everything is uncertain.
    let width = |batch| {
        let PredictedTime { low, high, .. } =
            model.predict(&Point { shape: TreeShape::chain(2), batch, context: 500.0 });
        high / low
    };
    assert!(width(23) > width(24) && width(45) > width(32), "{} {} {} {}", width(23), width(24), width(45), width(32));
    let far = Point { shape: TreeShape::chain(3), batch: 1 << 16, context: 500.0 };
    assert!((model.ms(&far) / model.physical_ms(&far) - 1.0).abs() < 1e-3);
    assert!(matches!(model.predict(&far).kind, PrefillKind::Extrapolated(_)));
}

#[test]
fn what_lies_outside_is_called_so() {
    let mut noise = StdRng::seed_from_u64(1);
    let space = DesignSpace { batches: vec![2, 8], contexts: vec![256, 512], ..space() };
    let model = RoundModel::fit(MACHINE, &timed(machine_ms, &design(&space, 12), &mut noise)).expect("it fits");
    fn check(model: &RoundModel, shape: &str, batch: usize, context: f64, expected: &[Quantity]) {
        let point = Point { shape: shape.parse().expect("a shape"), batch, context };
        let beyond = match model.predict(&point).kind {
            PrefillKind::Interpolated => Vec::new(),
            PrefillKind::Extrapolated(beyond) => beyond,
        };
        assert_eq!(beyond.iter().map(|one| one.measured.quantity).collect::<Vec<_>>(), expected, "{point}");
        for Beyond { value, measured } in beyond {
            assert_eq!(value, point.quantity(measured.quantity));
            assert!(value < measured.min || value > measured.max);
        }
    }
    check(&model, "3,1,4", 4, 300.0, &[]);
    check(&model, "3,1,4", 4, 520.0, &[]);
    check(&model, "3,1,4", 9, 300.0, &[Quantity::Batch]);
    check(&model, "3,1,4", 1, 300.0, &[Quantity::Batch]);
    check(&model, "3,1,4", 4, 4096.0, &[Quantity::Context]);
    check(&model, "9,1,10", 4, 300.0, &[Quantity::Steps]);
    check(&model, "3,10,61", 8, 300.0, &[Quantity::VerifiedRows, Quantity::DraftRows]);
    let absurd =
        Point { shape: TreeShape { num_steps: usize::MAX, ..TreeShape::OFF }, batch: usize::MAX, context: f64::NAN };
    assert!(matches!(model.predict(&absurd).kind, PrefillKind::Extrapolated(_)));
    check(&model, "0,1,1", 1, 100.0, &[Quantity::Batch, Quantity::VerifiedRows, Quantity::Context]);
}

#[test]
fn a_machine_that_is_always_the_same_and_a_single_point_are_no_trouble() {
    let mut noise = StdRng::seed_from_u64(3);
    let model = RoundModel::fit(MACHINE, &timed(|_| 5.0, &design(&space(), 16), &mut noise)).expect("it fits");
    for point in others(&mut noise) {
        let ms = model.ms(&point);
        assert!((4.4..5.7).contains(&ms), "{point}: {ms}");
    }
    let only = Point { shape: TreeShape::chain(3), batch: 4, context: 500.0 };
    let model = RoundModel::fit(MACHINE, &[TimedSample::full(only, vec![7.0])]).expect("it fits");
    assert_eq!(model.cross_validation(), None);
    let there = model.predict(&only);
    assert!((there.ms / 7.0 - 1.0).abs() < 0.01 && there.kind == PrefillKind::Interpolated, "{there:?}");
    let elsewhere = model.predict(&Point { batch: 40, ..only });
    assert!(elsewhere.ms > there.ms && elsewhere.high / elsewhere.ms > there.high / there.ms);
    assert!(matches!(elsewhere.kind, PrefillKind::Extrapolated(_)));
}

#[test]
fn what_is_no_measurement_is_an_error() {
    let good = TimedSample::full(Point { shape: TreeShape::chain(3), batch: 4, context: 500.0 }, vec![7.0]);
    let change = |change: &dyn Fn(&mut TimedSample)| {
        let mut wrong = good.clone();
        change(&mut wrong);
        RoundModel::fit(MACHINE, &[good.clone(), wrong]).expect_err("it is refused").to_string()
    };
    for time in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = change(&|sample| sample.ms.push(time));
        assert!(error.contains("point 2 ((3,1,4) at batch 4") && error.contains("above 0"), "{error}");
    }
    assert!(change(&|sample| sample.ms.clear()).contains("no round"));
    assert!(change(&|sample| sample.point.batch = 0).contains("batch"));
    assert!(change(&|sample| sample.point.context = f64::NAN).contains("context"));
    assert!(change(&|sample| sample.point.shape.num_draft_tokens = 9).contains("chain"));
    assert_eq!(RoundModel::fit(MACHINE, &[]), Err(LatencyError::NoPoint));
    for bandwidth in [0.0, f64::NAN] {
        let machine = LatencyMachine { bandwidth, ..MACHINE };
        assert!(matches!(RoundModel::fit(machine, std::slice::from_ref(&good)), Err(LatencyError::Machine(_))));
    }
    // Without known costs of passes, the constants have to explain everything.
    let unknown = LatencyMachine { cost: ModelCost::default(), ..MACHINE };
    let model = RoundModel::fit(unknown, std::slice::from_ref(&good)).expect("it fits");
    assert!((model.ms(&good.point) / 7.0 - 1.0).abs() < 0.01);
}
