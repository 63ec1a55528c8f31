//! Settings, from variables `TESSERA_EMULATOR_*` (the crate's head lists them). A setting that is
//! not understood, or that does not exist, stops `cuInit`.

use crate::code::Code;
use std::collections::BTreeMap;
use std::path::PathBuf;

const PREFIX: &str = "TESSERA_EMULATOR_";

/// A chip, as far as a program can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arch {
    Sm90,
    Sm100,
}

/// When asynchronous parts of a kernel happen, and in which of the legal orders things run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Earliest,
    Latest,
    Random(u64),
}

/// A kind of call whose occurrences are counted, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    Alloc,
    Launch,
    Copy,
}

/// A failure to be made at the `nth` call of `site`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) site: Site,
    pub(crate) nth: u64,
    pub(crate) code: Code,
    /// Whether the device is gone afterwards, for every context.
    pub(crate) lost: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) devices: usize,
    pub(crate) arch: Arch,
    /// Of each device.
    pub(crate) memory_bytes: u64,
    pub(crate) order: Order,
    /// How many further driver calls queued work waits for, unless somebody waits for it.
    pub(crate) latency_calls: u64,
    pub(crate) planned: Vec<Planned>,
    pub(crate) profile: Option<PathBuf>,
    pub(crate) waits: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            devices: 1,
            arch: Arch::Sm90,
            memory_bytes: 1 << 30,
            order: Order::Earliest,
            latency_calls: 0,
            planned: Vec::new(),
            profile: None,
            waits: None,
        }
    }
}

impl Settings {
    /// Reads the environment. The message names the variable, its value and what would do.
    pub(crate) fn from_environment() -> Result<Self, String> {
        let mut variables = BTreeMap::new();
        for (name, value) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if let Some(setting) = name.strip_prefix(PREFIX) {
                let value = value.into_string().map_err(|v| format!("{name}={v:?} is not text"))?;
                variables.insert(setting.to_owned(), value);
            }
        }
        Self::read(&variables)
    }

    fn read(variables: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut settings = Self::default();
        for (name, value) in variables {
            settings.set(name, value.trim()).map_err(|want| {
                let known = "DEVICES, ARCH, MEMORY, SCHEDULE, LATENCY, FAULTS, PROFILE, WAITS";
                match want.is_empty() {
                    true => format!("{PREFIX}{name} is no setting; there are {known}"),
                    false => format!("{PREFIX}{name}={value} is not understood; wanted {want}"),
                }
            })?;
        }
        Ok(settings)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        match name {
            "DEVICES" => {
                let count = value.parse().ok().filter(|n| *n <= 16);
                self.devices = count.ok_or("a number from 0 to 16")?;
            }
            "ARCH" => {
                self.arch = match value {
                    "sm_90" => Arch::Sm90,
                    "sm_100" => Arch::Sm100,
                    _ => return Err("sm_90 or sm_100"),
                };
            }
            "MEMORY" => {
                self.memory_bytes = bytes(value).ok_or("bytes, as 65536, 512MiB or 2GiB")?
            }
            "SCHEDULE" => {
                self.order = match value {
                    "earliest" => Order::Earliest,
                    "latest" => Order::Latest,
                    seed => Order::Random(seed.parse().map_err(|_| "earliest, latest or a seed")?),
                };
            }
            "LATENCY" => {
                self.latency_calls = value.parse().map_err(|_| "a number of driver calls")?;
            }
            "FAULTS" => {
                for fault in value.split(',').filter(|f| !f.is_empty()) {
                    self.planned.push(planned(fault.trim()).ok_or(
                        "alloc:N, launch:N:KIND or copy:N:KIND, joined by commas, N from 1, KIND one of \
                         illegal_address, misaligned, illegal_instruction, assert, failed, timeout, \
                         ecc, lost",
                    )?);
                }
            }
            "PROFILE" => self.profile = Some(PathBuf::from(value)),
            "WAITS" => self.waits = Some(PathBuf::from(value)),
            _ => return Err(""),
        }
        Ok(())
    }
}

fn bytes(value: &str) -> Option<u64> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("", 0)];
    let (number, shift) =
        units.iter().find_map(|(unit, s)| Some((value.strip_suffix(unit)?, s)))?;
    let number: u64 = number.trim().parse().ok()?;
    number.checked_mul(1 << shift).filter(|n| *n > 0)
}

fn planned(fault: &str) -> Option<Planned> {
    let mut parts = fault.split(':');
    let site = match parts.next()? {
        "alloc" => Site::Alloc,
        "launch" => Site::Launch,
        "copy" => Site::Copy,
        _ => return None,
    };
    let nth = parts.next()?.parse().ok().filter(|n| *n > 0)?;
    let kind = parts.next();
    let code = match (site, kind) {
        (Site::Alloc, None) => Code::ERROR_OUT_OF_MEMORY,
        (Site::Alloc, Some(_)) => return None,
        (_, kind) => match kind? {
            "illegal_address" => Code::ERROR_ILLEGAL_ADDRESS,
            "misaligned" => Code::ERROR_MISALIGNED_ADDRESS,
            "illegal_instruction" => Code::ERROR_ILLEGAL_INSTRUCTION,
            "assert" => Code::ERROR_ASSERT,
            "failed" => Code::ERROR_LAUNCH_FAILED,
            "timeout" => Code::ERROR_LAUNCH_TIMEOUT,
            "ecc" => Code::ERROR_ECC_UNCORRECTABLE,
            "lost" => Code::ERROR_DEVICE_UNAVAILABLE,
            _ => return None,
        },
    };
    let done = parts.next().is_none();
    done.then_some(Planned { site, nth, code, lost: kind == Some("lost") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, value: &str) -> Result<Settings, String> {
        Settings::read(&BTreeMap::from([(name.to_owned(), value.to_owned())]))
    }

    #[test]
    fn settings_are_read() {
        assert_eq!(read("DEVICES", "2").map(|s| s.devices), Ok(2));
        assert_eq!(read("ARCH", "sm_100").map(|s| s.arch), Ok(Arch::Sm100));
        assert_eq!(read("MEMORY", "3MiB").map(|s| s.memory_bytes), Ok(3 << 20));
        assert_eq!(read("MEMORY", "70000").map(|s| s.memory_bytes), Ok(70000));
        assert_eq!(read("SCHEDULE", "17").map(|s| s.order), Ok(Order::Random(17)));
        assert_eq!(read("LATENCY", "5").map(|s| s.latency_calls), Ok(5));
    }

    #[test]
    fn faults_are_read() {
        let faults = read("FAULTS", "alloc:3,launch:2:lost, copy:1:ecc").unwrap().planned;
        let sites: Vec<(Site, u64, u32)> =
            faults.iter().map(|f| (f.site, f.nth, f.code.0)).collect();
        assert_eq!(sites, [(Site::Alloc, 3, 2), (Site::Launch, 2, 46), (Site::Copy, 1, 214)]);
        assert_eq!(faults.iter().map(|f| f.lost).collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn a_bad_setting_is_refused_by_name() {
        let check = |name: &str, value: &str, says: &str| {
            let message = read(name, value).unwrap_err();
            assert!(message.contains(name) && message.contains(says), "{message}");
        };
        check("DEVICES", "many", "0 to 16");
        check("ARCH", "sm_80", "sm_90 or sm_100");
        check("MEMORY", "0", "bytes");
        check("MEMORY", "99999999999GiB", "bytes");
        check("SCHEDULE", "late", "seed");
        check("FAULTS", "alloc:0", "N from 1");
        check("FAULTS", "launch:1", "KIND");
        check("FAULTS", "launch:1:melted", "KIND");
        check("FAULTS", "launch:1:lost:twice", "KIND");
        check("MEMROY", "1", "is no setting");
    }
}
