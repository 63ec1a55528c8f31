//! Quantizing write of this step's latents into the paged cache, rotation included.

use super::Rows;
use super::cache::{CacheViewMut, encode};
use super::check::Check;
use super::rope::Rotation;
use crate::launch::{BufferId, BufferType, CacheId, DeviceShapes, PlanError, RowView};

/// Writes `latent | rotated k_pe` of each token to its slot: `stored = encode(real / k_scale)`,
/// where `k_scale` is the scale of the slot's page in this layer.
///
/// # Shapes
/// - `latent`: f32 `[num_tokens, kv_lora_rank]`, normed
/// - `k_pe`: f32 `[num_tokens, qk_rope_head_dim]`, not yet rotated
/// - `slot_mapping`: i64 `[num_tokens]`; `-1` skips the token
/// - `saturated`: u32 `[num_tokens]`; the count of clamped elements is added
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct KvWrite {
    pub latent: RowView,
    pub k_pe: RowView,
    pub rotation: Rotation,
    pub slot_mapping: BufferId,
    pub cache: CacheId,
    pub layer: usize,
    pub saturated: BufferId,
}

impl KvWrite {
    /// Whether the shapes fit.
    ///
    /// # Errors
    /// [`PlanError`] if they do not.
    pub fn check(&self, shapes: &DeviceShapes) -> Result<(), PlanError> {
        let check = Check { op: "kv_write", shapes };
        let tokens = self.latent.rows;
        check.view("latent", &self.latent, [tokens, self.latent.cols])?;
        check.view("k_pe", &self.k_pe, [tokens, self.k_pe.cols])?;
        self.rotation.check(&check, self.k_pe.cols, tokens)?;
        check.cache_layer(self.cache, self.layer, self.latent.cols + self.k_pe.cols)?;
        check.array("slot_mapping", self.slot_mapping, BufferType::I64, tokens)?;
        check.array("saturated", self.saturated, BufferType::U32, tokens)
    }

    /// Writes. Nothing is written if a slot is out of range.
    ///
    /// # Errors
    /// [`PlanError::Value`] on a slot that is neither -1 nor in the cache.
    pub fn reference(
        &self,
        (latent, k_pe): (Rows<'_>, Rows<'_>),
        (positions, inv_freq, slot_mapping): (&[i32], &[f32], &[i64]),
        cache: CacheViewMut<'_>,
        saturated: &mut [u32],
    ) -> Result<(), PlanError> {
        let CacheViewMut { spec, data, scales } = cache;
        let slots = &slot_mapping[..latent.num_rows()];
        let limit = spec.num_slots();
        let slots = slots.iter().map(|&slot| match usize::try_from(slot) {
            Ok(slot) if slot < limit => Ok(Some(slot)),
            Err(_) if slot == -1 => Ok(None),
            _ => {
                let (got, want) = (slot.to_string(), "-1 or a slot of the cache");
                Err(PlanError::Value { op: "kv_write", arg: "slot_mapping", got, want })
            }
        });
        let slots: Vec<Option<usize>> = slots.collect::<Result<_, _>>()?;
        let element = spec.format.element;
        let latent_bytes = latent.num_cols() * element.bits() / 8;
        let mut rotated = vec![0.0; k_pe.num_cols()];
        for (t, slot) in slots.into_iter().enumerate() {
            let Some(slot) = slot else { continue };
            let k_scale = scales[self.layer * spec.num_pages + slot / spec.page_size];
            let codes = &mut data[spec.slot_offset(self.layer, slot)..][..spec.entry_bytes()];
            let (latent_codes, rope_codes) = codes.split_at_mut(latent_bytes);
            saturated[t] += encode(element, latent.row(t), k_scale, latent_codes);
            rotated.copy_from_slice(k_pe.row(t));
            let turns = self.rotation.turns(positions[t], inv_freq, rotated.len() / 2);
            self.rotation.turn(&turns, &mut rotated);
            saturated[t] += encode(element, &rotated, k_scale, rope_codes);
        }
        Ok(())
    }
}
