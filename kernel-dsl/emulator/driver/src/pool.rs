//! Memory pools of stream-ordered allocation. Memory that is freed goes back to the device at once:
//! what is reserved is what is used, and a release threshold is only remembered.

use crate::code::{Code, Outcome, ensure};
use crate::driver::Driver;
use crate::handles::lock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// A pool of one device.
pub(crate) struct Pool {
    pub(crate) id: u64,
    pub(crate) device: i32,
    high: AtomicU64,
    /// Other devices whose kernels may use the pool's memory.
    granted: Mutex<BTreeSet<i32>>,
    /// Attributes that are only kept, by number.
    kept: Mutex<BTreeMap<u32, u64>>,
}

impl Pool {
    pub(crate) fn new(id: u64, device: i32) -> Self {
        // The three ways of reuse are on at first, as CUDA has it.
        let kept = BTreeMap::from([(1, 1), (2, 1), (3, 1), (4, 0)]);
        Self {
            id,
            device,
            high: AtomicU64::new(0),
            granted: Mutex::default(),
            kept: Mutex::new(kept),
        }
    }

    /// Remembers how much was used at most.
    pub(crate) fn note(&self, driver: &Driver) -> Outcome {
        let used = driver.device(self.device)?.ledger.of_pool(self.id);
        self.high.fetch_max(used, Ordering::Relaxed);
        Ok(())
    }

    /// An attribute by its number in `CUmemPool_attribute`.
    pub(crate) fn attribute(&self, driver: &Driver, number: u32) -> Outcome<u64> {
        match number {
            1..=4 => Ok(lock(&self.kept).get(&number).copied().unwrap_or(0)),
            5 | 7 => Ok(driver.device(self.device)?.ledger.of_pool(self.id)),
            6 | 8 => Ok(self.high.load(Ordering::Relaxed)),
            _ => Err(Code::ERROR_INVALID_VALUE),
        }
    }

    /// Sets an attribute. High-water marks can only be set to zero, which starts them anew.
    pub(crate) fn set_attribute(&self, driver: &Driver, number: u32, value: u64) -> Outcome {
        match number {
            1..=4 => {
                lock(&self.kept).insert(number, value);
                Ok(())
            }
            6 | 8 => {
                ensure(value == 0, Code::ERROR_INVALID_VALUE)?;
                let used = driver.device(self.device)?.ledger.of_pool(self.id);
                self.high.store(used, Ordering::Relaxed);
                Ok(())
            }
            _ => Err(Code::ERROR_INVALID_VALUE),
        }
    }

    /// Gives another device access to the pool's memory, or takes it back.
    pub(crate) fn grant(&self, device: i32, access: bool) {
        match access {
            true => lock(&self.granted).insert(device),
            false => lock(&self.granted).remove(&device),
        };
    }

    pub(crate) fn grants(&self, device: i32) -> bool {
        device == self.device || lock(&self.granted).contains(&device)
    }

    /// Whether an attribute is an `int`; the others have 64 bits.
    pub(crate) fn is_int(number: u32) -> bool {
        number <= 3
    }
}
