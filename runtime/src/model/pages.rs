//! What the hand-off does with a pool's pages: measure, convert, receive, digest.

use super::Forward;
use crate::cache::{PageId, PageTag};
use crate::device::{Device, DeviceError};
use tessera_kernels::formats::KvFormat;
use tessera_kernels::launch::Launch;
use tessera_kernels::ops::kv_convert::{KvAmax, KvConvert};
use tessera_kernels::ops::page_digest::{DigestKey, PageDigest};

/// A page in the receiver's format, on its way.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvertedPage {
    /// `[num_layers][page_size, entry]`.
    pub bytes: Vec<u8>,
    /// Elements that were clamped.
    pub saturated: u64,
}

impl<D: Device> Forward<D> {
    /// Gives a page its tag on the device.
    ///
    /// # Errors
    /// [`DeviceError`] of the device.
    pub fn set_page_tag(&mut self, page: PageId, tag: PageTag) -> Result<(), DeviceError> {
        let cache = self.cache();
        self.device().set_page_tag(cache, page.0, tag.0)
    }

    /// Gives a page its scales, one a layer: everything written to it later is divided by them.
    ///
    /// # Errors
    /// [`DeviceError`] of the device.
    pub fn set_page_scales(&mut self, page: PageId, scales: &[f32]) -> Result<(), DeviceError> {
        let cache = self.cache();
        self.device().set_page_scales(cache, page.0, scales)
    }

    /// Overwrites a page with zeros, so that nothing of it can be read again.
    ///
    /// # Errors
    /// [`DeviceError`] of the device.
    pub fn clear_page(&mut self, page: PageId) -> Result<(), DeviceError> {
        let cache = self.cache();
        self.device().clear_page(cache, page.0)
    }

    /// Largest magnitude of each layer over the valid tokens of `pages`.
    ///
    /// # Errors
    /// [`DeviceError`] of the device.
    pub fn amax(&mut self, pages: &[(PageId, u32)]) -> Result<Vec<f32>, DeviceError> {
        let (cache, amax) = (self.cache(), self.work().page_layers);
        let mut values = vec![0.0; self.cache_spec().num_layers];
        self.device().write_f32(amax, &values)?;
        for &(page, valid_tokens) in pages {
            let launch = KvAmax { cache, page: page.0, valid_tokens, amax };
            self.device().perform(&Launch::KvAmax(launch))?;
        }
        self.device().read_f32(amax, &mut values)?;
        Ok(values)
    }

    /// A page's valid tokens in another format.
    ///
    /// # Errors
    /// [`DeviceError`] of the device.
    pub fn convert_page(
        &mut self,
        (page, valid_tokens): (PageId, u32),
        target: &'static KvFormat,
        scales: &[f32],
    ) -> Result<ConvertedPage, DeviceError> {
        let spec = self.cache_spec();
        let elements = spec.num_layers * spec.page_size * spec.entry;
        let mut bytes = vec![0; elements * target.element.bits() / 8];
        let cache = self.cache();
        let work = self.work();
        let (scales_buffer, saturated, out) =
            (work.page_layers, work.page_saturated, work.page_bytes);
        let device = self.device();
        device.write_f32(scales_buffer, scales)?;
        device.write_u32(saturated, &[0])?;
        device.perform(&Launch::KvConvert(KvConvert {
            cache,
            page: page.0,
            valid_tokens,
            target,
            target_scales: scales_buffer,
            out,
            saturated,
        }))?;
        let mut count = [0];
        device.read_u32(saturated, &mut count)?;
        device.read_bytes(out, &mut bytes)?;
        Ok(ConvertedPage { bytes, saturated: u64::from(count[0]) })
    }

    /// Writes a received page, `[num_layers][page_size, entry]` in this pool's format.
    ///
    /// # Errors
    /// [`DeviceError`] of the device.
    pub fn receive_page(
        &mut self,
        page: PageId,
        bytes: &[u8],
        scales: &[f32],
    ) -> Result<(), DeviceError> {
        let cache = self.cache();
        self.device().write_page(cache, page.0, bytes)?;
        self.device().set_page_scales(cache, page.0, scales)
    }

    /// Digest of each layer of a page as it lies in the cache.
    ///
    /// # Errors
    /// [`DeviceError`] of the device.
    pub fn digests(&mut self, page: PageId, key: DigestKey) -> Result<Vec<u64>, DeviceError> {
        let (cache, digests) = (self.cache(), self.work().page_digests);
        let launch = PageDigest { cache, page: page.0, key, digests };
        self.device().perform(&Launch::PageDigest(launch))?;
        let mut values = vec![0; self.cache_spec().num_layers];
        self.device().read_u64(digests, &mut values)?;
        Ok(values)
    }
}
