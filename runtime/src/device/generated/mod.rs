//! Runs a checked launch by generated kernels: finds its memory, makes views of it, launches.
//!
//! What a kernel wants in another shape than a launch gives it is arranged here: heads become an
//! axis of a view, long prompts come in runs, intermediate results go to [`Scratch`].

mod absorb;
mod attention;
mod cache;
mod moe;
mod rows;
mod sample;
mod scratch;

pub(super) use absorb::Absorbed;
pub(super) use scratch::Scratch;

use super::DeviceError;
use super::cpu::{Buffer, Cache, CpuDevice, Kernels};
use super::layout::Heads;
use tessera_kernel_artifacts::lanes::exec::{PackedView, StoredView};
use tessera_kernel_artifacts::lanes::packed::PackedWeights;
use tessera_kernel_artifacts::lanes::{Cpu, LaunchError, View, ViewMut};
use tessera_kernels::launch::{BufferId, Launch, RowView, WeightId};

type Result<T = (), E = DeviceError> = std::result::Result<T, E>;

/// Runs `launch`, which `Launch::check` has passed.
pub(super) fn perform(device: &mut CpuDevice, launch: &Launch) -> Result {
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
        Launch::AbsorbQuery(op) => absorb::absorb_query(device, op),
        Launch::AbsorbValue(op) => absorb::absorb_value(device, op),
        Launch::MlaDecode(op) => attention::mla_decode(device, op),
        Launch::MlaPrefill(op) => attention::prefill(device, op),
        Launch::KvWrite(op) => cache::kv_write(device, op),
        Launch::PageTagCheck(op) => cache::page_tag_check(device, op),
        Launch::PageDigest(op) => cache::page_digest(device, op),
        Launch::KvAmax(op) => cache::kv_amax(device, op),
        Launch::KvConvert(op) => cache::kv_convert(device, op),
        Launch::Sample(op) => sample::sample(device, op),
    }
}

impl CpuDevice {
    fn cpu(&self) -> &Cpu {
        match &self.kernels {
            Kernels::Generated(cpu) => cpu,
            Kernels::Reference | Kernels::Idle(_) => unreachable!("only generated kernels ask"),
        }
    }

    /// Calls `f` with the device, less the scratch memory and the buffers that a launch writes.
    fn lend_with_scratch<const N: usize, R>(
        &mut self,
        ids: [BufferId; N],
        f: impl FnOnce(&Self, &mut Scratch, [&mut Buffer; N]) -> R,
    ) -> R {
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = self.lend(ids, |device, buffers| f(device, &mut scratch, buffers));
        self.scratch = scratch;
        result
    }

    fn view(&self, view: &RowView) -> View<'_, f32, 2> {
        let RowView { rows, cols, stride, offset, .. } = *view;
        View::strided(self.f32(view.buffer).get(offset..).unwrap_or(&[]), [rows, cols], [stride, 1])
    }

    /// A view with the heads, `size` elements of every `stride`, as its first axis.
    fn heads(&self, view: &RowView, heads: Heads) -> View<'_, f32, 3> {
        let data = self.f32(view.buffer).get(view.offset + heads.first..).unwrap_or(&[]);
        let dims = [heads.count, view.rows, heads.size];
        View::strided(data, dims, [heads.stride, view.stride, 1])
    }

    fn packed_weight(&self, id: WeightId) -> PackedView<'_, 2> {
        PackedView::<2>::new(self.packed(id))
    }

    fn packed(&self, id: WeightId) -> &PackedWeights {
        &self.packed[id.0 as usize]
    }
}

impl Buffer {
    fn view(&mut self, view: &RowView) -> ViewMut<'_, f32, 2> {
        let RowView { rows, cols, stride, offset, .. } = *view;
        let data = self.f32().get_mut(offset..).unwrap_or(&mut []);
        ViewMut::strided(data, [rows, cols], [stride, 1])
    }

    fn heads(&mut self, view: &RowView, heads: Heads) -> ViewMut<'_, f32, 3> {
        let data = self.f32().get_mut(view.offset + heads.first..).unwrap_or(&mut []);
        let dims = [heads.count, view.rows, heads.size];
        ViewMut::strided(data, dims, [heads.stride, view.stride, 1])
    }
}

impl Cache {
    /// Codes of a layer from column `first` on, `[slots, cols]`.
    fn layer(&self, layer: usize, first: usize, cols: usize) -> StoredView<'_, 2> {
        let (spec, element) = (&self.spec, self.spec.format.element);
        let start = spec.slot_offset(layer, 0) + first * spec.format.element_bytes();
        let bytes = self.data.get(start..).unwrap_or(&[]);
        StoredView::strided(bytes, element, ([spec.num_slots(), cols], [spec.entry, 1]))
    }

    /// `k_scale` of each page in a layer.
    fn layer_scales(&self, layer: usize) -> View<'_, f32, 1> {
        let pages = self.spec.num_pages;
        View::new(&self.scales[layer * pages..][..pages], [pages])
    }
}

fn launched(result: std::result::Result<(), LaunchError>) -> Result {
    result.map_err(DeviceError::Launch)
}
