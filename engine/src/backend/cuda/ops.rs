//! The operations of a decoder layer. Each dispatches on the kind of its weights, in one `match`.

mod attention;
mod ffn;
mod input;
mod layer;
mod linear;
mod products;

pub(super) use self::{
    input::Input,
    layer::{LayerOperands, LayerOutput, NeededRows, NextNorm},
    linear::LmHead,
};
