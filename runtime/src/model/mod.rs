//! Models as data: what a checkpoint's config says, its weights, and the forward pass they make.

mod config;
mod spec;
mod weights;

pub use config::{ConfigError, LATENT_NORM_EPS, SUPPORTED_MODEL_TYPES};
pub(crate) use config::{Fields, text_config};
pub use spec::{MlaSpec, ModelSpec, MoeSpec, RopeSpec, YarnSpec};
pub use weights::{GatedMlp, LayerWeights, MlaWeights, Mlp, ModelWeights, QueryWeights};
