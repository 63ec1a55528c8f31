//! What code is made for.

/// An architecture, as PTX names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Target {
    /// H100, H200.
    Sm90a,
    /// B200 and, as the family, B300.
    Sm100f,
}

impl Target {
    /// Every target, in order of age.
    pub const ALL: [Self; 2] = [Self::Sm90a, Self::Sm100f];

    /// Name in PTX.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sm90a => "sm_90a",
            Self::Sm100f => "sm_100f",
        }
    }

    /// The PTX version its text is written in: what the oldest driver we support knows.
    pub const fn ptx_version(self) -> &'static str {
        match self {
            Self::Sm90a | Self::Sm100f => "9.0",
        }
    }

    /// Most dynamic shared memory of a program, in bytes.
    pub const fn max_shared_bytes(self) -> usize {
        match self {
            Self::Sm90a | Self::Sm100f => 227 * 1024,
        }
    }
}
