//! Byte sizes as people write them: `48.2GB` is decimal, `2GiB` binary, `4096` bytes.

use std::str::FromStr;

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSize(pub usize);

/// Why a text is no size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a size: a number, then nothing, B, kB, MB, GB, TB, KiB, MiB, GiB or TiB")]
pub struct SizeError {
    text: String,
}

const UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KIB", 1 << 10),
    ("MIB", 1 << 20),
    ("GIB", 1 << 30),
    ("TIB", 1 << 40),
];

impl FromStr for ByteSize {
    type Err = SizeError;

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "digits and a point make no negative number; a cast saturates and is checked"
    )]
    fn from_str(text: &str) -> Result<Self, SizeError> {
        let error = || SizeError { text: text.to_owned() };
        let trimmed = text.trim();
        let end =
            trimmed.find(|ch: char| !ch.is_ascii_digit() && ch != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(end);
        let unit = unit.trim().to_ascii_uppercase();
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(error)?;
        let number: f64 = number.parse().map_err(|_| error())?;
        let bytes = (number * *factor as f64).round();
        if bytes < 1.0 || bytes >= usize::MAX as f64 {
            return Err(error());
        }
        Ok(Self(bytes as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse() {
        let check = |text: &str, bytes: Option<usize>| {
            assert_eq!(text.parse::<ByteSize>().ok(), bytes.map(ByteSize), "{text}");
        };
        check("48.2GB", Some(48_200_000_000));
        check("2GiB", Some(2_147_483_648));
        check("64 mib", Some(67_108_864));
        check("4096", Some(4096));
        for bad in ["", "GB", "-1GB", "1.2.3GB", "1XB", "0", "1e3", "nan"] {
            check(bad, None);
        }
    }
}
