//! Models as data: what a checkpoint's config says, its weights, and the forward pass they make.

mod forward;
mod layers;
mod pages;
mod spec;
mod weights;
mod workspace;

pub use forward::{Forward, Sampled, SeqInput, SeqOutput, StepLimits};
pub use layers::Attention;
pub use pages::ConvertedPage;
pub use spec::{MlaSpec, ModelSpec, MoeSpec, RopeSpec, YarnSpec};
pub use weights::{GatedMlp, LayerWeights, MlaWeights, Mlp, ModelWeights, QueryWeights};
pub use workspace::MAX_TOP_LOGPROBS;
