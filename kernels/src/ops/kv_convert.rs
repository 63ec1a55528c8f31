//! Converts cached pages from one pool's KV format to another's.

use super::cache::{CacheView, KvDecoder, encode};
use super::check::Check;
use crate::formats::KvFormat;
use crate::launch::{BufferId, BufferType, CacheId, CacheSpec, DeviceShapes, PlanError};

/// Largest magnitude per layer of the valid tokens of one page: folded into `amax` by maximum.
///
/// # Shapes
/// - `amax`: f32 `[num_layers]`
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct KvAmax {
    pub cache: CacheId,
    pub page: u32,
    pub valid_tokens: u32,
    pub amax: BufferId,
}

/// Re-encodes one page: `stored' = encode_target(stored * k_scale / target_scale)`; a conversion to
/// the same format and scale copies codes unchanged.
///
/// # Shapes
/// - `target_scales`: f32 `[num_layers]`
/// - `out`: bytes `[num_layers][page_size, entry]` in the target format; zero past `valid_tokens`
/// - `saturated`: u32 `[num_layers][page_size]`, clamped elements of each token
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct KvConvert {
    pub cache: CacheId,
    pub page: u32,
    pub valid_tokens: u32,
    pub target: &'static KvFormat,
    pub target_scales: BufferId,
    pub out: BufferId,
    pub saturated: BufferId,
}

/// Checks a page and the number of its tokens that hold data.
fn check_page<'a>(
    check: &'a Check<'_>,
    cache: CacheId,
    page: u32,
    valid_tokens: u32,
) -> Result<&'a CacheSpec, PlanError> {
    let spec = check.cache(cache)?;
    check.ensure((page as usize) < spec.num_pages, "page", page, "a page of the cache")?;
    let fits = valid_tokens as usize <= spec.page_size;
    check.ensure(fits, "valid_tokens", valid_tokens, "at most the page size")?;
    Ok(spec)
}

impl KvAmax {
    /// Whether the shapes fit.
    ///
    /// # Errors
    /// [`PlanError`] if they do not.
    pub fn check(&self, shapes: &DeviceShapes) -> Result<(), PlanError> {
        let check = Check { op: "kv_amax", shapes };
        let spec = check_page(&check, self.cache, self.page, self.valid_tokens)?;
        check.array("amax", self.amax, BufferType::F32, spec.num_layers)
    }

    /// Folds; a NaN in the page makes the layer's maximum NaN.
    pub fn reference(&self, cache: &CacheView<'_>, amax: &mut [f32]) {
        let decoder = KvDecoder::new(cache.spec.format);
        let mut real = vec![0.0; cache.spec.entry];
        for (layer, amax) in amax.iter_mut().enumerate().take(cache.spec.num_layers) {
            for slot in slots(&cache.spec, self.page, self.valid_tokens) {
                cache.decode(&decoder, layer, slot, &mut real);
                for value in &real {
                    if value.is_nan() || value.abs() > *amax {
                        *amax = value.abs();
                    }
                }
            }
        }
    }
}

impl KvConvert {
    /// Whether the shapes fit.
    ///
    /// # Errors
    /// [`PlanError`] if they do not.
    pub fn check(&self, shapes: &DeviceShapes) -> Result<(), PlanError> {
        let check = Check { op: "kv_convert", shapes };
        let spec = check_page(&check, self.cache, self.page, self.valid_tokens)?;
        let bytes = CacheSpec { format: self.target, ..*spec }.page_bytes();
        check.array("target_scales", self.target_scales, BufferType::F32, spec.num_layers)?;
        check.array("out", self.out, BufferType::Bytes, bytes)?;
        let counts = spec.num_layers * spec.page_size;
        check.array("saturated", self.saturated, BufferType::U32, counts)
    }

    /// Converts.
    ///
    /// # Errors
    /// [`PlanError::Value`] on a target scale that is not finite and above 0.
    pub fn reference(
        &self,
        cache: &CacheView<'_>,
        target_scales: &[f32],
        out: &mut [u8],
        saturated: &mut [u32],
    ) -> Result<(), PlanError> {
        let spec = &cache.spec;
        let target_scales = &target_scales[..spec.num_layers];
        if let Some(bad) = target_scales.iter().find(|s| !(s.is_finite() && **s > 0.0)) {
            let (got, want) = (bad.to_string(), "a finite value above 0");
            return Err(PlanError::Value { op: "kv_convert", arg: "target_scales", got, want });
        }
        let target = CacheSpec { format: self.target, ..*spec };
        let decoder = KvDecoder::new(spec.format);
        let mut real = vec![0.0; spec.entry];
        let out = &mut out[..target.page_bytes()];
        out.fill(0);
        let saturated = &mut saturated[..spec.num_layers * spec.page_size];
        saturated.fill(0);
        let layers = out.chunks_exact_mut(target.page_layer_bytes());
        let layers = layers.zip(saturated.chunks_exact_mut(spec.page_size)).enumerate();
        for (layer, (out, saturated)) in layers {
            let target_scale = target_scales[layer];
            let same_scale = cache.scale(layer, self.page as usize) == target_scale;
            let same = spec.format.element == self.target.element && same_scale;
            let tokens = slots(spec, self.page, self.valid_tokens);
            let out = out.chunks_exact_mut(target.entry_bytes());
            for (slot, (out, clamped)) in tokens.zip(out.zip(saturated)) {
                if same {
                    out.copy_from_slice(cache.codes(layer, slot));
                } else {
                    cache.decode(&decoder, layer, slot, &mut real);
                    *clamped = encode(self.target.element, &real, target_scale, out);
                }
            }
        }
        Ok(())
    }
}

/// Slots of the first tokens of a page.
fn slots(spec: &CacheSpec, page: u32, valid_tokens: u32) -> std::ops::Range<usize> {
    let first = page as usize * spec.page_size;
    first..first + valid_tokens as usize
}
