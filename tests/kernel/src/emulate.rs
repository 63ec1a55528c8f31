//! Cases on the emulator: the PTX that a GPU would run, launched as a GPU's host would launch it.

use crate::cases::Built;
use crate::place::{Place, Room};
use anyhow::{Context, Result, bail};
use tessera_emulator::{Launch, Machine, Module, Profile};
use tessera_ptx::Compiled;
use tessera_ptx::launch::Plan;
use tessera_tile_ir::Kernel;

/// Alignment of every array, that of a driver's allocations.
const ALIGN: u64 = 256;

impl Room for Machine {
    fn upload(&mut self, bytes: &[u8]) -> Result<u64> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let address = self.alloc(bytes.len() as u64, ALIGN)?;
        self.write(address, bytes)?;
        Ok(address)
    }

    fn download(&mut self, address: u64, bytes: &mut [u8]) -> Result<()> {
        Ok(self.read(address, bytes)?)
    }
}

/// Runs a case's kernel on the emulator; written arrays are changed in place.
///
/// # Errors
/// As the launch; the message of an assert that failed.
pub fn run(
    kernel: &Kernel,
    compiled: &Compiled,
    built: &mut Built,
    machine: &mut Machine,
) -> Result<Profile> {
    let module = Module::parse(&compiled.ptx).context("the PTX does not parse")?;
    let place = Place::of(kernel, built, machine)?;
    let faults = machine.upload(&[0; 4])?;
    let mut plan = Plan::default();
    plan.make(std::slice::from_ref(&compiled.entry), place.args())?;
    let profile = if plan.is_empty() {
        Profile::default()
    } else {
        let grid = plan.grid();
        let params: Vec<u8> = plan.words(faults).iter().flat_map(|w| w.to_le_bytes()).collect();
        let block = [compiled.entry.threads, 1, 1];
        let shared_bytes = compiled.entry.shared_bytes;
        let launch = Launch { grid, block, shared_bytes, params: &params };
        machine.launch(&module, &compiled.entry.entry, &launch)?
    };
    let mut fault = [0; 4];
    machine.download(faults, &mut fault)?;
    if let Some(index) = u32::from_le_bytes(fault).checked_sub(1) {
        let assert = compiled.entry.asserts.get(index as usize);
        bail!("{}", assert.map_or("an assert that does not exist", |assert| &assert.message));
    }
    place.fetch(kernel, built, machine)?;
    Ok(profile)
}
