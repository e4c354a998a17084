//! Models whose routers choose all experts equally often, to measure: those of random weights
//! choose nearly the same few for all rows.

use super::{DraftSpec, FfnSpec, LayerSpec, TargetSpec};

impl LayerSpec {
    fn make_uniform(&mut self) {
        if let FfnSpec::Experts(experts) = &mut self.ffn {
            experts.router.uniform = true;
        }
    }
}

impl TargetSpec {
    /// The same with uniform routers; `None` if it has no experts.
    pub fn with_uniform_router(mut self) -> Option<Self> {
        self.layers.iter_mut().for_each(LayerSpec::make_uniform);
        self.layers.iter().any(|layer| layer.ffn.experts().is_some()).then_some(self)
    }
}

impl DraftSpec {
    /// The same with uniform routers, if it has experts.
    #[must_use]
    pub fn with_uniform_router(mut self) -> Self {
        match &mut self {
            Self::Recurrent(recurrent) => recurrent.layer.make_uniform(),
            Self::Block(block) => block.layers.iter_mut().for_each(|layer| layer.layer.make_uniform()),
            Self::Model(model) => model.layers.iter_mut().for_each(LayerSpec::make_uniform),
            Self::Text(_) => {}
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use crate::spec::{DraftSpec, published};

    #[test]
    fn routers_of_the_target_and_of_its_mtp_layer_become_uniform() {
        let shape = published("glm-4.5-air").expect("a shape");
        let target = shape.target(Some(3)).expect("three layers").with_uniform_router().expect("it has experts");
        let draft = DraftSpec::Recurrent(shape.draft(&target)).with_uniform_router();
        let layers = target.layers.iter().chain(draft.layers());
        let routers: Vec<_> = layers.filter_map(|layer| layer.ffn.experts()).map(|experts| experts.router()).collect();
        assert!(routers.len() > 1 && routers.iter().all(|router| router.uniform), "{routers:?}");
    }

    #[test]
    fn models_without_experts_have_no_uniform_router() {
        let dense = published("llama-3.1-8b").expect("a shape").target(Some(1)).expect("one layer");
        assert!(dense.with_uniform_router().is_none());
    }
}
