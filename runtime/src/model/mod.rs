//! Models as data: what a checkpoint's config says, its weights, and the forward pass they make.

mod config;
mod forward;
mod host;
mod layers;
mod pages;
mod spec;
mod weights;
mod workspace;

pub use config::{ConfigError, LATENT_NORM_EPS, SUPPORTED_MODEL_TYPES};
pub(crate) use config::{Fields, text_config};
pub use forward::{Forward, NewTokens, Sampled, SeqInput, SeqOutput, StepLimits, StepTicket};
pub use layers::Attention;
pub use pages::{ArrivingDigests, ConvertedPage};
pub use spec::{MlaSpec, ModelSpec, MoeSpec, RopeSpec, YarnSpec};
pub use weights::{GatedMlp, LayerWeights, MlaWeights, Mlp, ModelWeights, QueryWeights};
