//! What devices can do at best: bytes a second of their memory, operations a second of their matrix
//! units.

/// The best a device can do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Peak {
    /// Bytes a second from device memory.
    pub(crate) bytes: f64,
    /// BF16 operations a second, without sparsity. Products of FP8 may be twice as many; what is
    /// limited by operations is then said to be nearer to the limit than it is.
    pub(crate) flops: f64,
}

/// By how a name begins or what is in it, the longer first. From NVIDIA's data sheets of H100, H200
/// and the HGX B200 and B300 boards (an eighth of the board), where figures with sparsity are halved.
const PEAKS: [(&str, Peak); 6] = [
    ("H100 PCIe", Peak { bytes: 2.0e12, flops: 756e12 }),
    ("H100 NVL", Peak { bytes: 3.9e12, flops: 835e12 }),
    ("H100", Peak { bytes: 3.35e12, flops: 989e12 }),
    ("H200", Peak { bytes: 4.8e12, flops: 989e12 }),
    ("B200", Peak { bytes: 7.7e12, flops: 2.25e15 }),
    ("B300", Peak { bytes: 7.7e12, flops: 2.25e15 }),
];

/// The peak of a device of that name.
pub(crate) fn peak(name: &str) -> Option<Peak> {
    PEAKS.iter().find(|(part, _)| name.contains(part)).map(|(_, peak)| *peak)
}

impl Peak {
    /// The least microseconds for that many bytes and operations.
    pub(crate) fn floor_micros(&self, bytes: f64, flops: f64) -> f64 {
        (bytes / self.bytes).max(flops / self.flops) * 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_drivers_say_them() {
        let bytes = |name: &str| peak(name).map(|peak| peak.bytes);
        assert_eq!(bytes("NVIDIA H200"), Some(4.8e12));
        assert_eq!(bytes("NVIDIA H100 80GB HBM3"), Some(3.35e12));
        assert_eq!(bytes("NVIDIA H100 PCIe"), Some(2.0e12));
        assert_eq!(bytes("Tessera emulator (sm_90)"), None);
    }

    #[test]
    fn the_slower_of_both_is_the_floor() {
        let peak = Peak { bytes: 1e12, flops: 1e15 };
        assert_eq!(peak.floor_micros(2e6, 1e3), 2.0);
        assert_eq!(peak.floor_micros(1.0, 3e9), 3.0);
    }
}
