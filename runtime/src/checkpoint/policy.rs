//! Which weights a pool keeps in which format.

use super::CheckpointError;
use tessera_kernels::formats::{FORMATS, Format, format};

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

/// Roles that a format with scales is asked for by its own name.
const EXPERTS_AND_DENSE: &[Role] = &[DenseMlp, SharedExpert, RoutedExpert];

const PRESETS: &[Preset] = &[
    ("fp8", "fp8-128x128", &[Attention, DenseMlp, SharedExpert, RoutedExpert]),
    ("int4", "int4-g32", &[RoutedExpert]),
    ("int4-g32", "int4-g32", &[RoutedExpert]),
    ("int4-g128", "int4-g128", &[RoutedExpert]),
];

/// Names of the policies there are: `checkpoint`, presets, and every format.
pub fn policy_names() -> Vec<&'static str> {
    let mut names = vec!["checkpoint"];
    let presets = PRESETS.iter().map(|(name, ..)| *name);
    for name in presets.chain(FORMATS.iter().map(|format| format.name)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// One weight format and the roles that are kept in it; every other role stays as stored.
///
/// | name | format | roles |
/// |---|---|---|
/// | `checkpoint` | as stored | |
/// | `fp8` | `fp8-128x128` | attention, dense, shared, routed |
/// | `int4`, `int4-g32`, `int4-g128` | `int4-g32`, `int4-g128` | routed |
/// | `bf16` or another format without scales | that | all |
/// | `nvfp4` or another format with scales | that | dense, shared, routed |
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
        let preset = PRESETS.iter().find(|(preset, ..)| *preset == name);
        let found = match preset {
            Some(&(name, wanted, roles)) => format(wanted).map(|format| (name, format, roles)),
            None => format(name).map(|format| {
                let roles = if format.scale_tile.is_some() { EXPERTS_AND_DENSE } else { ROLES };
                (format.name, format, roles)
            }),
        };
        let (name, wanted, roles) = found.ok_or_else(|| CheckpointError::Policy {
            name: name.to_owned(),
            supported: policy_names(),
        })?;
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
        for name in policy_names() {
            assert_eq!(WeightPolicy::preset(name).unwrap().name, name);
        }
        for format in FORMATS {
            let policy = WeightPolicy::preset(format.name).unwrap();
            assert_eq!(policy.format(RoutedExpert), Some(*format));
        }
        let bf16 = WeightPolicy::preset("bf16").unwrap();
        assert_eq!(bf16.formats.len(), ROLES.len());
        assert!(WeightPolicy::preset("int3").is_err());
        let int4 = WeightPolicy::preset("int4").unwrap();
        assert_eq!(int4.format(RoutedExpert).unwrap().name, "int4-g32");
        assert_eq!(int4.format(Attention), None);
    }
}
