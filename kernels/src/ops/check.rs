//! Shape checks that the ops share.

use crate::launch::{
    BufferId, BufferType, CacheId, CacheSpec, DeviceShapes, PlanError, RowView, WeightId,
};

/// One op's checks against what a device holds.
pub(super) struct Check<'a> {
    pub(super) op: &'static str,
    pub(super) shapes: &'a DeviceShapes,
}

impl Check<'_> {
    /// An error about a shape.
    pub(super) fn shape(&self, arg: &'static str, got: &[usize], want: &[usize]) -> PlanError {
        PlanError::Shape { op: self.op, arg, got: got.to_vec(), want: want.to_vec() }
    }

    /// An error about a value.
    pub(super) fn value(
        &self,
        arg: &'static str,
        got: impl ToString,
        want: &'static str,
    ) -> PlanError {
        PlanError::Value { op: self.op, arg, got: got.to_string(), want }
    }

    /// `condition`, or an error about a value.
    pub(super) fn ensure(
        &self,
        condition: bool,
        arg: &'static str,
        got: impl ToString,
        want: &'static str,
    ) -> Result<(), PlanError> {
        if condition { Ok(()) } else { Err(self.value(arg, got, want)) }
    }

    /// A view of that shape that lies inside its f32 buffer.
    pub(super) fn view(
        &self,
        arg: &'static str,
        view: &RowView,
        [rows, cols]: [usize; 2],
    ) -> Result<(), PlanError> {
        if [view.rows, view.cols] != [rows, cols] {
            return Err(self.shape(arg, &[view.rows, view.cols], &[rows, cols]));
        }
        let end = match rows {
            0 => Some(view.offset),
            _ => (rows - 1)
                .checked_mul(view.stride)
                .and_then(|start| start.checked_add(cols)?.checked_add(view.offset)),
        };
        self.ensure(view.stride >= cols, arg, view.stride, "a stride of at least one row")?;
        let len = end.ok_or_else(|| self.value(arg, view.offset, "an offset inside the buffer"))?;
        self.array(arg, view.buffer, BufferType::F32, len)
    }

    /// A buffer of that type and at least that length.
    pub(super) fn array(
        &self,
        arg: &'static str,
        id: BufferId,
        kind: BufferType,
        len: usize,
    ) -> Result<(), PlanError> {
        match self.shapes.buffers.get(id.0 as usize) {
            None => Err(self.value(arg, id.0, "the id of a buffer")),
            Some((got, _)) if *got != kind => {
                Err(self.value(arg, format!("a buffer of {got:?}"), kind_name(kind)))
            }
            Some((_, got)) if *got < len => Err(self.shape(arg, &[*got], &[len])),
            Some(_) => Ok(()),
        }
    }

    /// A weight of that shape.
    pub(super) fn weight(
        &self,
        arg: &'static str,
        id: WeightId,
        want: [usize; 2],
    ) -> Result<(), PlanError> {
        match self.shapes.weights.get(id.0 as usize) {
            None => Err(self.value(arg, id.0, "the id of a weight")),
            Some(got) if *got != want => Err(self.shape(arg, got, &want)),
            Some(_) => Ok(()),
        }
    }

    /// A weight's columns and rows, whatever they are.
    pub(super) fn weight_shape(
        &self,
        arg: &'static str,
        id: WeightId,
    ) -> Result<[usize; 2], PlanError> {
        let shape = self.shapes.weights.get(id.0 as usize);
        shape.copied().ok_or_else(|| self.value(arg, id.0, "the id of a weight"))
    }

    /// The cache of that id.
    pub(super) fn cache(&self, id: CacheId) -> Result<&CacheSpec, PlanError> {
        let cache = self.shapes.caches.get(id.0 as usize);
        cache.ok_or_else(|| self.value("cache", id.0, "the id of a cache"))
    }

    /// A layer of that cache whose entries have that many elements.
    pub(super) fn cache_layer(
        &self,
        id: CacheId,
        layer: usize,
        entry: usize,
    ) -> Result<(), PlanError> {
        let cache = self.cache(id)?;
        self.ensure(layer < cache.num_layers, "layer", layer, "a layer of the cache")?;
        if cache.entry != entry {
            return Err(self.shape("cache", &[cache.entry], &[entry]));
        }
        Ok(())
    }

    /// An output that shares no buffer with the inputs: the reference writes while it reads.
    pub(super) fn apart(
        &self,
        arg: &'static str,
        out: BufferId,
        inputs: &[BufferId],
    ) -> Result<(), PlanError> {
        self.ensure(!inputs.contains(&out), arg, out.0, "a buffer that is no input")
    }
}

const fn kind_name(kind: BufferType) -> &'static str {
    match kind {
        BufferType::F32 => "a buffer of f32",
        BufferType::I32 => "a buffer of i32",
        BufferType::I64 => "a buffer of i64",
        BufferType::U32 => "a buffer of u32",
        BufferType::U64 => "a buffer of u64",
        BufferType::Bytes => "a buffer of bytes",
    }
}
