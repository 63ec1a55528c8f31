//! Models as data: what a checkpoint's config says, its weights, and the forward pass they make.

mod spec;
mod weights;

pub use spec::{ConfigError, MlaSpec, ModelSpec, MoeSpec, RopeSpec, YarnSpec};
pub use weights::{GatedMlp, LayerWeights, MlaWeights, Mlp, ModelWeights, QueryWeights};
