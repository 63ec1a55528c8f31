//! What a device is: its numbers, its memory's accounts, and whether it is still there.

use crate::code::{Code, Outcome};
use crate::gpu::Gpu;
use crate::memory::Ledger;
use crate::settings::{Arch, Order, Settings};
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// One device. All of them lie in one address space, as devices of a real driver do.
pub(crate) struct Device {
    pub(crate) ordinal: i32,
    pub(crate) arch: Arch,
    pub(crate) order: Order,
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) ledger: Ledger,
    /// Set once, when the device is lost.
    lost: OnceLock<Code>,
    pub(crate) profile: Option<Profile>,
    pub(crate) launches: AtomicU64,
}

/// Where profiles of launches are appended, shared by the devices.
pub(crate) type Profile = Arc<Mutex<File>>;

/// The CUDA version that the driver answers with.
pub(crate) const DRIVER_VERSION: i32 = 13000;
/// The last attribute that this version of the interface names.
const LAST_ATTRIBUTE: i32 = 156;
pub(crate) const WARP_SIZE: u32 = 32;
pub(crate) const MAX_THREADS_PER_CTA: u32 = 1024;
pub(crate) const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
pub(crate) const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];
/// Shared memory that a CTA may have without asking, and at most.
pub(crate) const SHARED_DEFAULT: u32 = 48 << 10;
pub(crate) const SHARED_OPTIN: u32 = 227 << 10;
/// Shared memory of a multiprocessor, and what it keeps of that for each CTA.
pub(crate) const SHARED_PER_SM: u32 = 228 << 10;
pub(crate) const SHARED_RESERVED: u32 = 1 << 10;
pub(crate) const THREADS_PER_SM: u32 = 2048;
pub(crate) const CTAS_PER_SM: u32 = 32;

impl Device {
    pub(crate) fn new(
        ordinal: i32,
        settings: &Settings,
        gpu: Arc<Gpu>,
        profile: Option<Profile>,
    ) -> Self {
        Self {
            ordinal,
            arch: settings.arch,
            order: settings.order,
            gpu,
            ledger: Ledger::new(settings.memory_bytes),
            lost: OnceLock::new(),
            profile,
            launches: AtomicU64::new(0),
        }
    }

    pub(crate) fn next_launch(&self) -> u64 {
        self.launches.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn lose(&self, code: Code) {
        self.lost.get_or_init(|| code);
    }

    /// An error if the device was lost.
    pub(crate) fn check(&self) -> Outcome {
        self.lost.get().map_or(Ok(()), |code| Err(*code))
    }

    pub(crate) fn name(&self) -> String {
        let chip = match self.arch {
            Arch::Sm90 => "sm_90",
            Arch::Sm100 => "sm_100",
        };
        format!("Tessera emulator ({chip})")
    }

    /// Sixteen bytes that no other device has; `ordinal` in the last.
    pub(crate) fn uuid(&self) -> [u8; 16] {
        let mut uuid = *b"tessera emulat00";
        uuid[15] = b'0' + u8::try_from(self.ordinal).unwrap_or(0);
        uuid
    }

    pub(crate) fn compute_capability(&self) -> (i32, i32) {
        match self.arch {
            Arch::Sm90 => (9, 0),
            Arch::Sm100 => (10, 0),
        }
    }

    pub(crate) fn sm_count(&self) -> i32 {
        match self.arch {
            Arch::Sm90 => 132,
            Arch::Sm100 => 148,
        }
    }

    /// A device attribute by its number in `CUdevice_attribute`. What the emulator cannot do is 0:
    /// managed, mapped and pageable memory, cooperative launches, clusters, textures.
    pub(crate) fn attribute(&self, number: i32) -> Outcome<i32> {
        let (major, minor) = self.compute_capability();
        let int = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
        Ok(match number {
            1 => int(MAX_THREADS_PER_CTA),
            2..=4 => int(MAX_BLOCK[number as usize - 2]),
            5..=7 => int(MAX_GRID[number as usize - 5]),
            8 => int(SHARED_DEFAULT),
            9 => 64 << 10, // constant memory
            10 => int(WARP_SIZE),
            11 => i32::MAX,      // pitch
            12 | 82 => 64 << 10, // registers of a CTA, of a multiprocessor
            13 => 1_000_000, // clock in kHz: one instruction a nanosecond, as virtual time has it
            14 | 30 => 512,  // alignment of textures and surfaces
            15 | 31 => 1,    // copies and kernels overlap
            16 => self.sm_count(),
            33 => self.ordinal + 1, // PCI bus
            38 => 50 << 20,         // L2 cache
            39 => int(THREADS_PER_SM),
            40 => 2,  // copy engines
            41 => 1,  // unified addressing
            51 => 32, // texture pitch
            75 => major,
            76 => minor,
            78..=80 => 1, // stream priorities; L1 for global and local memory
            81 => int(SHARED_PER_SM),
            87 => 2,
            90 => 1, // preemption
            97 => int(SHARED_OPTIN),
            99 => 1, // registering host memory
            106 => int(CTAS_PER_SM),
            111 => int(SHARED_RESERVED),
            115 => 1, // memory pools
            126 => 1, // memory synchronization domains
            127 => 1, // tensor maps
            _ if (1..=LAST_ATTRIBUTE).contains(&number) => 0,
            _ => return Err(Code::ERROR_INVALID_VALUE),
        })
    }
}
