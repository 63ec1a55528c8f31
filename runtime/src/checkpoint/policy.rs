//! Which weights a pool keeps in which format.

use super::CheckpointError;
use tessera_kernels::formats::{Format, format};

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

use Role::{Attention, DenseMlp, Embed, LmHead, RoutedExpert, RouterGate, SharedExpert};

/// Every role.
pub const ROLES: &[Role] =
    &[Embed, LmHead, Attention, DenseMlp, SharedExpert, RoutedExpert, RouterGate];

/// A preset: its name, the format it asks for, and of which roles.
type Preset = (&'static str, &'static str, &'static [Role]);

const PRESETS: &[Preset] = &[
    ("bf16", "bf16", ROLES),
    ("fp8", "fp8-128x128", &[Attention, DenseMlp, SharedExpert, RoutedExpert]),
    ("int4", "int4-g32", &[RoutedExpert]),
    ("int4-g32", "int4-g32", &[RoutedExpert]),
    ("int4-g128", "int4-g128", &[RoutedExpert]),
    ("nvfp4", "nvfp4", &[DenseMlp, SharedExpert, RoutedExpert]),
    ("mxfp4", "mxfp4", &[DenseMlp, SharedExpert, RoutedExpert]),
];

/// Names of the policies there are.
pub const POLICY_NAMES: &[&str] =
    &["checkpoint", "bf16", "fp8", "int4", "int4-g32", "int4-g128", "nvfp4", "mxfp4"];

/// One weight format and the roles that are kept in it; every other role stays as stored.
///
/// | name | format | roles |
/// |---|---|---|
/// | `checkpoint` | as stored | |
/// | `bf16` | `bf16` | all |
/// | `fp8` | `fp8-128x128` | attention, dense, shared, routed |
/// | `int4`, `int4-g32`, `int4-g128` | `int4-g32`, `int4-g128` | routed |
/// | `nvfp4`, `mxfp4` | `nvfp4`, `mxfp4` | dense, shared, routed |
#[derive(Debug, Clone, PartialEq)]
pub struct WeightPolicy {
    /// Name on the command line, such as `int4`.
    pub name: &'static str,
    /// The format asked for, by role.
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
        if name == "checkpoint" {
            return Ok(Self::checkpoint());
        }
        let unknown = || CheckpointError::Policy { name: name.to_owned(), supported: POLICY_NAMES };
        let &(name, wanted, roles) =
            PRESETS.iter().find(|(preset, ..)| *preset == name).ok_or_else(unknown)?;
        let wanted = format(wanted).ok_or_else(unknown)?;
        Ok(Self { name, formats: roles.iter().map(|&role| (role, wanted)).collect() })
    }

    /// The format asked for, or `None` to keep what is stored.
    pub fn format(&self, role: Role) -> Option<&'static Format> {
        self.formats.iter().find(|(r, _)| *r == role).map(|&(_, format)| format)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_policy() {
        for name in POLICY_NAMES {
            assert_eq!(WeightPolicy::preset(name).unwrap().name, *name);
        }
        assert!(WeightPolicy::preset("int3").is_err());
        let int4 = WeightPolicy::preset("int4").unwrap();
        assert_eq!(int4.format(RoutedExpert).unwrap().name, "int4-g32");
        assert_eq!(int4.format(Attention), None);
    }
}
