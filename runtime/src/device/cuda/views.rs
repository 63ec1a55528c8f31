//! Arguments of kernels: addresses with extents and strides.

use super::memory::{Hold, element_bytes, element_name};
use super::{CudaDevice, CudaError};
use crate::device::DeviceError;
use crate::device::layout::Heads;
use tessera_kernels::formats::Element;
use tessera_kernels::launch::{BufferId, BufferType, CacheId, PlanError, RowView, WeightId};
use tessera_ptx::launch::{Arg, Axes, PackedArg, ViewArg};

/// What kernels are given: names of elements are ours, so they live as long as the program.
pub(super) type KernelArg = Arg<'static>;

/// An array with strides in elements.
pub(super) fn strided<const R: usize>(
    address: u64,
    elem: &'static str,
    (dims, strides): ([usize; R], [usize; R]),
) -> KernelArg {
    let (dims, strides) = (Axes::new(dims), Axes::new(strides));
    Arg::View(ViewArg { address, elem, dims, strides })
}

/// An array without gaps.
pub(super) fn dense<const R: usize>(
    address: u64,
    elem: &'static str,
    dims: [usize; R],
) -> KernelArg {
    let mut strides = [1; R];
    for axis in (1..R).rev() {
        strides[axis - 1] = strides[axis] * dims[axis];
    }
    strided(address, elem, (dims, strides))
}

/// `[rows, heads, size]` as `[heads, rows, size]` and so on: which axis is the heads'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadAxis {
    First,
    Second,
}

impl CudaDevice {
    /// Address of an element of a buffer.
    pub(super) fn address(&self, id: BufferId, element: usize) -> u64 {
        let buffer = &self.buffers[id.0 as usize];
        buffer.memory.address() + (element * element_bytes(buffer.kind)) as u64
    }

    /// The start of a buffer, without gaps.
    pub(super) fn array<const R: usize>(&self, id: BufferId, dims: [usize; R]) -> KernelArg {
        let kind = self.buffers[id.0 as usize].kind;
        dense(self.address(id, 0), element_name(kind), dims)
    }

    /// Rows of f32.
    pub(super) fn rows(&self, view: &RowView) -> KernelArg {
        let address = self.address(view.buffer, view.offset);
        strided(address, "f32", ([view.rows, view.cols], [view.stride, 1]))
    }

    /// Rows of f32 with the heads as an axis of their own.
    pub(super) fn heads(&self, view: &RowView, heads: Heads, axis: HeadAxis) -> KernelArg {
        let address = self.address(view.buffer, view.offset + heads.first);
        let shape = match axis {
            HeadAxis::First => {
                ([heads.count, view.rows, heads.size], [heads.stride, view.stride, 1])
            }
            HeadAxis::Second => {
                ([view.rows, heads.count, heads.size], [view.stride, heads.stride, 1])
            }
        };
        strided(address, "f32", shape)
    }

    /// A weight.
    pub(super) fn packed(&self, id: WeightId) -> KernelArg {
        let place = self.weights[id.0 as usize];
        let group = &self.groups[place.group];
        let [codes, scales, zero_points, tensor_scales] = group.addresses(place.index);
        Arg::Packed(PackedArg {
            format: group.format.name,
            codes,
            scales,
            zero_points,
            tensor_scales,
            dims: Axes::new([group.rows, group.cols]),
        })
    }

    /// Weights that were loaded together, as one with an axis more.
    pub(super) fn packed_group(&self, ids: &[WeightId]) -> Result<KernelArg, DeviceError> {
        let refused = |got: String| {
            let (op, arg, want) =
                ("grouped_linear", "weights", "weights loaded together, in order");
            PlanError::Value { op, arg, got, want }
        };
        let Some(first) = ids.first() else { return Err(refused("none".to_owned()).into()) };
        let place = self.weights[first.0 as usize];
        let group = &self.groups[place.group];
        for (at, id) in ids.iter().enumerate() {
            let own = self.weights[id.0 as usize];
            if (own.group, own.index) != (place.group, place.index + at) {
                return Err(refused(format!("weight {} at {at}", id.0)).into());
            }
        }
        let [codes, scales, zero_points, tensor_scales] = group.addresses(place.index);
        Ok(Arg::Packed(PackedArg {
            format: group.format.name,
            codes,
            scales,
            zero_points,
            tensor_scales,
            dims: Axes::new([ids.len(), group.rows, group.cols]),
        }))
    }

    /// Codes of a cache layer from column `first` on, `[slots, cols]`.
    pub(super) fn layer(
        &self,
        cache: CacheId,
        layer: usize,
        (first, cols): (usize, usize),
    ) -> KernelArg {
        let cache = &self.caches[cache.0 as usize];
        let spec = &cache.spec;
        let start = spec.slot_offset(layer, 0) + first * spec.format.element_bytes();
        let address = cache.data.address() + start as u64;
        strided(address, spec.format.element.name(), ([spec.num_slots(), cols], [spec.entry, 1]))
    }

    /// `k_scale` of each page in a layer.
    pub(super) fn layer_scales(&self, cache: CacheId, layer: usize) -> KernelArg {
        let cache = &self.caches[cache.0 as usize];
        let pages = cache.spec.num_pages;
        dense(cache.scales.address() + (layer * pages * 4) as u64, "f32", [pages])
    }

    /// One page in all layers, `[layers, page_size, entry]`.
    pub(super) fn page(&self, cache: CacheId, page: u32) -> KernelArg {
        let cache = &self.caches[cache.0 as usize];
        let spec = &cache.spec;
        let address = cache.data.address() + spec.page_offset(0, page as usize) as u64;
        let dims = [spec.num_layers, spec.page_size, spec.entry];
        let strides = [spec.num_slots() * spec.entry, spec.entry, 1];
        strided(address, spec.format.element.name(), (dims, strides))
    }

    /// `k_scale` of one page in each layer.
    pub(super) fn page_layer_scales(&self, cache: CacheId, page: u32) -> KernelArg {
        let cache = &self.caches[cache.0 as usize];
        let layers = cache.spec.num_layers;
        let start = page as usize * layers * 4;
        dense(cache.page_scales.address() + start as u64, "f32", [layers])
    }

    /// Bytes of a buffer as codes of an element.
    pub(super) fn codes<const R: usize>(
        &self,
        id: BufferId,
        element: Element,
        dims: [usize; R],
    ) -> KernelArg {
        dense(self.address(id, 0), element.name(), dims)
    }

    /// Room for an intermediate result.
    pub(super) fn hold<const R: usize>(
        &mut self,
        hold: Hold,
        kind: BufferType,
        dims: [usize; R],
    ) -> Result<KernelArg, CudaError> {
        let bytes = dims.iter().product::<usize>() * element_bytes(kind);
        let memory = self.scratch.take(hold, bytes)?;
        Ok(dense(memory.address(), element_name(kind), dims))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_of_an_array_without_gaps() {
        let Arg::View(view) = dense(64, "f32", [2, 3, 5]) else { panic!("a view") };
        assert_eq!(view.strides.as_ref(), [15, 5, 1]);
        let Arg::View(view) = dense(64, "f32", [7]) else { panic!("a view") };
        assert_eq!((view.address, view.strides.as_ref()), (64, [1].as_slice()));
    }
}
