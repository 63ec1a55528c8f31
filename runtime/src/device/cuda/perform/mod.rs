//! Which kernels a checked launch is: finds its memory, makes arguments of it, launches. The twin of
//! `generated`, which does the same for the CPU.
//!
//! Nothing here waits but for what only the host can do: sampling that is more than the likeliest
//! token.

mod attention;
mod cache;
mod moe;
mod prefill;
mod rows;
mod sample;

use super::CudaDevice;
use crate::device::DeviceError;
use crate::device::layout::wants_likeliest;
use tessera_kernels::launch::{BufferId, Launch};

type Result<T = (), E = DeviceError> = std::result::Result<T, E>;

/// Runs `launch`, which `Launch::check` has passed.
pub(super) fn perform(device: &mut CudaDevice, launch: &Launch) -> Result {
    match launch {
        Launch::FeedTokens(op) => rows::feed_tokens(device, op),
        Launch::Embedding(op) => rows::embedding(device, op),
        Launch::RmsNorm(op) => rows::rms_norm(device, op),
        Launch::Linear(op) => rows::linear(device, op),
        Launch::SwiGlu(op) => rows::swiglu(device, op),
        Launch::GatherRows(op) => rows::gather_rows(device, op),
        Launch::Router(op) => moe::router(device, op),
        Launch::Permute(op) => moe::permute(device, op),
        Launch::GroupedLinear(op) => moe::grouped_linear(device, op),
        Launch::Combine(op) => moe::combine(device, op),
        Launch::Rope(op) => attention::rope(device, op),
        Launch::AbsorbQuery(op) => attention::absorb_query(device, op),
        Launch::AbsorbValue(op) => attention::absorb_value(device, op),
        Launch::MlaDecode(op) => attention::mla_decode(device, op),
        Launch::MlaPrefill(op) => prefill::mla_prefill(device, op),
        Launch::KvWrite(op) => cache::kv_write(device, op),
        Launch::PageTagCheck(op) => cache::page_tag_check(device, op),
        Launch::PageDigest(op) => cache::page_digest(device, op),
        Launch::KvAmax(op) => cache::kv_amax(device, op),
        Launch::KvConvert(op) => cache::kv_convert(device, op),
        Launch::Sample(op) => sample::sample(device, op),
    }
}

/// In how many parts the launches of a plan attend, if they can be repeated without the host: a
/// decode step's can, a prefill step sends tables of its own to the device.
pub(super) fn repeatable(device: &CudaDevice, launches: &[Launch]) -> Result<Option<usize>> {
    let (mut parts, mut sorted) = (None, None);
    for launch in launches {
        match launch {
            Launch::MlaDecode(op) if parts.is_none() => {
                parts = attention::num_parts(device, op)?;
            }
            Launch::Permute(op) => sorted = Some(op.order),
            // An order from elsewhere is inverted on the host.
            Launch::Combine(op) if sorted != Some(op.order) => return Ok(None),
            Launch::Sample(op) if op.rows.iter().all(|row| wants_likeliest(&row.params)) => {}
            Launch::MlaPrefill(_) | Launch::Sample(_) | Launch::PageDigest(_) => return Ok(None),
            _ => {}
        }
    }
    Ok(parts)
}

impl CudaDevice {
    /// Notes which buffers of integers a launch writes.
    fn writes<const N: usize>(&mut self, ids: [BufferId; N]) {
        for id in ids {
            self.buffers[id.0 as usize].is_written();
        }
    }

    /// The first `len` integers of a buffer; read from the device if the host does not know them.
    fn integers(&self, id: BufferId, len: usize) -> Result<Vec<i32>> {
        let buffer = &self.buffers[id.0 as usize];
        if let Some(known) = buffer.known(len) {
            return Ok(known.to_vec());
        }
        let mut values = vec![0i32; len];
        let bytes = super::ffi::bytes_of_mut(&mut values);
        self.fetch(vec![(&buffer.memory, 0, bytes)])?;
        Ok(values)
    }
}
