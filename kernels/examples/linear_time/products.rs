//! The same layers with rows in FP8: each layer's input is quantised, by the norm before it or by a
//! kernel between.

use kernels::{
    device::{
        Buffer, DeviceError, Element, Slice,
        matmul::{Fp8Product, Matmul, MatmulHandle, Operands, SearchSetup},
    },
    launch::{
        Added, Kernels, Linear, NormOutputs, Parts, QuantiseRows, QuantiseTo, RowForm, RowScales, Rows, Stream,
        WeightType,
    },
    reference::{Fp8Rows, Fp8Scales},
};

use super::{ELEMENT, HEAD_ROWS, Layer, Model, Weight, Work, layer};

/// How rows share scales, given those of the weights.
pub fn row_layout(weights: Fp8Scales) -> Fp8Rows {
    if weights == Fp8Scales::Channels { Fp8Rows::Row } else { Fp8Rows::RowBlocks }
}

/// A model, the buffers of a pass, and memory for its quantised rows.
pub struct Products<'a> {
    model: &'a Model,
    work: &'a Work,
    weights: Fp8Scales,
    layout: Fp8Rows,
    quantised: Buffer,
    scales: Buffer,
}

/// Which kernels multiply.
#[derive(Clone, Copy)]
pub enum Route<'a> {
    /// Those that stream weights, with rows in this form.
    Streamed(RowForm),
    /// Warp groups of few rows.
    Few,
    /// Warp groups of more rows.
    Groups,
    /// The library: plans for qkv, output, gate and up, and down.
    Library(&'a [MatmulHandle; 4]),
}

impl Route<'_> {
    /// The form of the rows that they multiply.
    fn form(self) -> RowForm {
        match self {
            Self::Streamed(form) => form,
            Self::Few | Self::Groups | Self::Library(_) => RowForm::Numbers,
        }
    }
}

impl<'a> Products<'a> {
    pub fn new(model: &'a Model, work: &'a Work, weights: Fp8Scales) -> Result<Self, DeviceError> {
        let (device, layout) = (model.kernels.device(), row_layout(weights));
        let widest = model.shape.intermediate.max(model.shape.hidden);
        let quantised = device.zeros(work.rows * widest * ELEMENT.bytes())?;
        let scales = device.zeros(Kernels::row_scales_bytes(layout, work.rows, widest))?;
        Ok(Self { model, work, weights, layout, quantised, scales })
    }

    /// Whether warp groups of few rows support this many.
    pub fn has_few(&self) -> bool {
        let hidden = self.model.shape.hidden;
        self.model.kernels.suits_group(self.work.rows, hidden, hidden, WeightType::Fp8)
    }

    /// Whether warp groups support this many rows.
    pub fn has_groups(&self) -> bool {
        let hidden = self.model.shape.hidden;
        let layouts = (self.weights, self.layout);
        !self.model.kernels.wide_products(self.work.rows, [hidden, hidden], 1, layouts).is_empty()
    }

    /// A pass over all layers and the vocabulary.
    pub fn pass(&self, route: Route<'_>) -> Result<(), DeviceError> {
        let form = route.form();
        let Work { rows, x, gated, .. } = self.work;
        let (hidden, intermediate) = (self.model.shape.hidden, self.model.shape.intermediate);
        let mut input = self.quantise(x, form, [hidden, 1])?;
        for own in &self.model.layers {
            self.qkv(route, own, input)?;
            // As attention would leave it.
            let between = self.quantise(x, form, [hidden, 1])?;
            let output = layer(&self.work.y, &self.quantised, &own.output, *rows, hidden, hidden);
            input = self.add_and_norm(route, (form, 1), Linear { row_scales: Some(between), ..output })?;
            let gate_up = layer(gated, &self.quantised, &own.gate_up, *rows, hidden, intermediate);
            let halves = self.gate_up(route, Linear { row_scales: Some(input), ..gate_up })?;
            let from = if halves == 2 { &self.work.y } else { gated };
            let between = self.quantise(from, form, [intermediate, halves])?;
            let down = layer(&self.work.y, &self.quantised, &own.down, *rows, intermediate, hidden);
            input = self.add_and_norm(route, (form, 3), Linear { row_scales: Some(between), ..down })?;
        }
        self.head()
    }

    /// Queries, keys and values.
    fn qkv(&self, route: Route<'_>, own: &Layer, input: RowScales<'_>) -> Result<(), DeviceError> {
        let (hidden, qkv) = (self.model.shape.hidden, self.model.shape.qkv);
        let operands = layer(&self.work.y, &self.quantised, &own.qkv, self.work.rows, hidden, qkv);
        self.product(route, 0, Linear { row_scales: Some(input), ..operands }).map(|_| ())
    }

    /// Quantises rows of a buffer, or gate and up of two halves.
    fn quantise(
        &self,
        from: &Buffer,
        form: RowForm,
        [inputs, halves]: [usize; 2],
    ) -> Result<RowScales<'_>, DeviceError> {
        self.model.kernels.quantise_rows(QuantiseRows {
            out: self.quantised.slice(),
            to: self.to(form),
            x: Rows { at: from.slice(), stride: halves * inputs },
            unscaled: None,
            gated: halves == 2,
            rows: self.work.rows,
            inputs,
        })
    }

    fn to(&self, form: RowForm) -> QuantiseTo<'_> {
        QuantiseTo { scales: self.scales.slice(), fixed: None, layout: self.layout, form }
    }

    /// A product, and where it is; `number` is that of its plan.
    fn product<'b>(&'b self, route: Route<'_>, number: usize, linear: Linear<'b>) -> Result<Added<'b>, DeviceError> {
        let (kernels, parts) = (&self.model.kernels, self.work.parts.slice());
        let Linear { rows, inputs, outputs, .. } = linear;
        let whole = Added::Rows(Rows { at: linear.y, stride: outputs });
        let in_parts = |left: Option<Parts<'b>>| left.map_or(whole, Added::Parts);
        match route {
            Route::Streamed(_) if kernels.suits_few(rows, inputs, outputs, WeightType::Fp8) => {
                kernels.linear_few(linear).map(|()| whole)
            }
            Route::Streamed(_) if kernels.suits_pairs(rows, WeightType::Fp8) => {
                let several = kernels.parts_of_pairs(inputs, outputs) > 1;
                let y = if several { parts } else { linear.y };
                kernels.linear_pairs(Linear { y, ..linear }, Kernels::MOST_PARTS).map(in_parts)
            }
            Route::Streamed(_) => {
                let several = kernels.parts_of(inputs, outputs, WeightType::Fp8) > 1;
                if rows > Kernels::MOST_ROWS_IN_PARTS || !several {
                    return kernels.linear(linear).map(|()| whole);
                }
                kernels.linear_in_parts(Linear { y: parts, ..linear }).map(Added::Parts)
            }
            Route::Few => {
                let several = kernels.parts_of_group(rows, inputs, outputs, WeightType::Fp8) > 1;
                let y = if several { parts } else { linear.y };
                kernels.linear_group(Linear { y, ..linear }, Kernels::MOST_PARTS).map(in_parts)
            }
            Route::Groups => {
                let layouts = (self.weights, self.layout);
                let wide = kernels.wide_products(rows, [inputs, outputs], Kernels::MOST_PARTS, layouts);
                let wide =
                    *wide.first().ok_or_else(|| DeviceError::Shape(format!("no warp groups for {rows} rows")))?;
                let y = if wide.parts() > 1 { parts } else { linear.y };
                kernels.linear_wide(Linear { y, ..linear }, wide).map(in_parts)
            }
            Route::Library(plans) => self.run(&plans[number], linear, linear.y).map(|()| whole),
        }
    }

    /// Runs a plan of the library.
    fn run(&self, plan: &MatmulHandle, linear: Linear<'_>, y: Slice<'_>) -> Result<(), DeviceError> {
        let scales = linear.row_scales.zip(linear.scales).map(|(rows, weights)| [rows.at, weights.at]);
        let (x, w, workspace) = (linear.x.at, linear.weight, self.work.workspace.slice());
        plan.run(Operands { y, onto: None, parts: Slice::NONE, x, w, scales, workspace }).map(|_| ())
    }

    /// Gate and up with their activation, or as the library leaves them; returns the number of
    /// halves in a row.
    fn gate_up(&self, route: Route<'_>, linear: Linear<'_>) -> Result<usize, DeviceError> {
        let (kernels, Linear { rows, inputs, outputs, .. }) = (&self.model.kernels, linear);
        match route {
            Route::Streamed(_) if kernels.suits_pairs(rows, WeightType::Fp8) => kernels.linear_pairs_gated(linear)?,
            Route::Streamed(_) => kernels.linear_gated(linear)?,
            Route::Few => kernels.linear_group_gated(linear)?,
            Route::Groups => {
                let wide = kernels.wide_products(rows, [inputs, 2 * outputs], 1, (self.weights, self.layout));
                let wide =
                    *wide.first().ok_or_else(|| DeviceError::Shape(format!("no warp groups for {rows} rows")))?;
                kernels.linear_wide_gated(linear, wide)?;
            }
            Route::Library(plans) => {
                self.run(&plans[2], linear, self.work.y.slice())?;
                return Ok(2);
            }
        }
        Ok(1)
    }

    /// A layer that is added to the stream, and the norm of the sum, quantised.
    fn add_and_norm<'b>(
        &'b self,
        route: Route<'_>,
        (form, number): (RowForm, usize),
        linear: Linear<'b>,
    ) -> Result<RowScales<'b>, DeviceError> {
        let (kernels, Work { rows, x, stream, squares, .. }) = (&self.model.kernels, self.work);
        let Linear { inputs, outputs, .. } = linear;
        let few = kernels.suits_few_to_stream(*rows, inputs, outputs, WeightType::Fp8);
        if matches!(route, Route::Streamed(_) | Route::Few) && few {
            let (norm, squares) = (self.model.norm.slice(), squares.slice());
            let to = Stream { keep: None, norm, normed: x.slice(), squares, epsilon: 1e-5 };
            let unscaled = kernels.few_to_stream(Linear { y: stream.slice(), ..linear }, to)?;
            return kernels.quantise_rows(QuantiseRows {
                out: self.quantised.slice(),
                to: self.to(form),
                x: Rows { at: x.slice(), stride: outputs },
                unscaled: Some(unscaled),
                gated: false,
                rows: *rows,
                inputs: outputs,
            });
        }
        let norm = self.model.norm_of(self.work, self.product(route, number, linear)?);
        kernels.rms_norm_quantised(norm, (self.quantised.slice(), self.to(form)), NormOutputs::Quantised)
    }

    /// The product with the vocabulary, which is in 16 bits, after a norm.
    fn head(&self) -> Result<(), DeviceError> {
        let (kernels, shape) = (&self.model.kernels, &self.model.shape);
        let Work { rows, x, logits, .. } = self.work;
        let head = layer(logits, x, &self.model.head, (*rows).min(HEAD_ROWS), shape.hidden, shape.vocabulary);
        let head = Linear { y_is_float: true, ..head };
        let rows = head.rows;
        match kernels.wide(rows, [shape.hidden, shape.vocabulary], 1, None).first() {
            _ if kernels.suits_group(rows, shape.hidden, shape.vocabulary, WeightType::Plain) => {
                kernels.linear_group(head, 1).map(|_| ())
            }
            Some(wide) => kernels.linear_wide(head, *wide).map(|_| ()),
            None => kernels.linear(head),
        }
    }

    /// Plans of the library for qkv, output, gate and up, and down, each searched once; `None` if
    /// it has no such products.
    pub fn library(&self) -> Result<Option<[MatmulHandle; 4]>, DeviceError> {
        let (hidden, qkv, intermediate) =
            (self.model.shape.hidden, self.model.shape.qkv, self.model.shape.intermediate);
        let Some(own) = self.model.layers.first() else { return Ok(None) };
        let plans = [
            self.plan(&own.qkv, [hidden, qkv])?,
            self.plan(&own.output, [hidden, hidden])?,
            self.plan(&own.gate_up, [hidden, 2 * intermediate])?,
            self.plan(&own.down, [intermediate, hidden])?,
        ];
        let [Some(a), Some(b), Some(c), Some(d)] = plans else { return Ok(None) };
        Ok(Some([a, b, c, d]))
    }

    fn plan(&self, weight: &Weight, [inputs, outputs]: [usize; 2]) -> Result<Option<MatmulHandle>, DeviceError> {
        let (kernels, work) = (&self.model.kernels, self.work);
        let fp8 = Some(Fp8Product { weights: self.weights, rows: self.layout });
        let rows = work.rows;
        let matmul = Matmul { rows, inputs, outputs, element: ELEMENT, fp8, result: Element::BF16, most_parts: 1 };
        let plan = match MatmulHandle::new(kernels.device(), matmul, Some("linear_time")) {
            Ok(plan) => plan,
            Err(error) => {
                eprintln!("the library has no {matmul:?}: {error}");
                None
            }
        };
        let (Some(mut plan), Some((scales, _))) = (plan, &weight.scales) else { return Ok(None) };
        if plan.fastest().is_none() {
            let neighbour = || kernels.fill_random(work.workspace.range(0..16), 1.0, 0);
            let operands = Operands {
                y: work.y.slice(),
                onto: None,
                parts: Slice::NONE,
                x: self.quantised.slice(),
                w: weight.at.slice(),
                scales: Some([self.scales.slice(), scales.slice()]),
                workspace: work.workspace.slice(),
            };
            let own_kernels = SearchSetup { own_kernels: &[], neighbour: &neighbour, behind_library: None, user: None };
            plan.search(kernels.device(), operands, own_kernels)?;
        }
        Ok(Some(plan))
    }

    /// The relative difference (Euclidean) of queries, keys and values of the first layer from
    /// those of the streaming kernels, by warp groups and by the library; and of those of 16-bit
    /// rows, which shows the error of quantisation.
    pub fn differences(&self, plans: Option<&[MatmulHandle; 4]>) -> Result<[Option<f64>; 4], DeviceError> {
        let Some(own) = self.model.layers.first() else { return Ok([None; 4]) };
        let (hidden, qkv) = (self.model.shape.hidden, self.model.shape.qkv);
        let streamed = self.one(own, Route::Streamed(RowForm::Values))?;
        let plain = layer(&self.work.y, &self.work.x, &own.qkv, self.work.rows, hidden, qkv);
        self.model.kernels.linear(plain)?;
        let plain = self.found()?;
        let few = self.has_few().then(|| self.one(own, Route::Few)).transpose()?;
        let groups = self.has_groups().then(|| self.one(own, Route::Groups)).transpose()?;
        let library = plans.map(|plans| self.one(own, Route::Library(plans))).transpose()?;
        let from = |found: Option<Vec<f32>>| found.map(|found| difference(&found, &streamed));
        Ok([from(few), from(groups), from(library), from(Some(plain))])
    }

    /// Queries, keys and values in one part.
    fn one(&self, own: &Layer, route: Route<'_>) -> Result<Vec<f32>, DeviceError> {
        let form = route.form();
        let (hidden, qkv, kernels) = (self.model.shape.hidden, self.model.shape.qkv, &self.model.kernels);
        let input = self.quantise(&self.work.x, form, [hidden, 1])?;
        let linear = layer(&self.work.y, &self.quantised, &own.qkv, self.work.rows, hidden, qkv);
        let linear = Linear { row_scales: Some(input), ..linear };
        match route {
            Route::Streamed(_) => kernels.linear(linear)?,
            Route::Few => kernels.linear_group(linear, 1).map(|_| ())?,
            Route::Groups => {
                let wide = kernels.wide_products(linear.rows, [hidden, qkv], 1, (self.weights, self.layout));
                kernels.linear_wide(linear, wide[0])?;
            }
            Route::Library(plans) => self.run(&plans[0], linear, linear.y)?,
        }
        self.found()
    }

    /// The first rows of the result, of type bfloat16.
    fn found(&self) -> Result<Vec<f32>, DeviceError> {
        let count = self.work.rows.min(512) * self.model.shape.qkv;
        let bytes: Vec<u8> = self.model.kernels.device().download(self.work.y.range(0..count * ELEMENT.bytes()))?;
        Ok(ELEMENT.decode(&bytes))
    }
}

/// ‖found − expected‖ / ‖expected‖.
fn difference(found: &[f32], expected: &[f32]) -> f64 {
    let square = |value: f32| f64::from(value).powi(2);
    let apart: f64 = found.iter().zip(expected).map(|(found, expected)| square(found - expected)).sum();
    (apart / expected.iter().map(|value| square(*value)).sum::<f64>()).sqrt()
}
