//! Performs a checked launch: the one place that says by which code.

use super::cpu::{CpuDevice, Kernels};
use super::{DeviceError, generated, reference};
use tessera_kernels::launch::Launch;

/// Runs `launch`, which `Launch::check` has passed.
pub(super) fn perform(device: &mut CpuDevice, launch: &Launch) -> Result<(), DeviceError> {
    match &device.kernels {
        Kernels::Idle(pool) => {
            // As many programs as keep every thread busy, so that all are woken.
            pool.run(4 * pool.threads(), 1, |_, _| {});
            Ok(())
        }
        Kernels::Generated(_) => generated::perform(device, launch),
        Kernels::Reference => Ok(reference::perform(device, launch)?),
    }
}
