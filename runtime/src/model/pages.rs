//! What the hand-off does with a pool's pages: measure, convert, receive, digest.

use super::Forward;
use crate::cache::{PageId, PageTag};
use crate::device::{CacheSpec, Device, DeviceError, ReadTicket, Target};
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

/// Digests of a page that were asked for.
#[derive(Debug)]
#[must_use = "a page that nobody checks counts as unchecked"]
pub struct ArrivingDigests {
    ticket: ReadTicket,
    values: Vec<u64>,
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

    /// Valid tokens of each of `pages` in another format. All are asked for before any is waited for.
    ///
    /// # Errors
    /// [`DeviceError`] of the device.
    pub fn convert_pages(
        &mut self,
        pages: &[(PageId, u32)],
        target: &'static KvFormat,
        scales: &[f32],
    ) -> Result<Vec<ConvertedPage>, DeviceError> {
        let spec = *self.cache_spec();
        let (cache, work) = (self.cache(), self.work());
        let (target_scales, out, saturated) =
            (work.page_layers, work.page_bytes, work.page_saturated);
        self.device().write_f32(target_scales, scales)?;
        let mut arriving = Vec::with_capacity(pages.len());
        for &(page, valid_tokens) in pages {
            let page = page.0;
            let op = KvConvert { cache, page, valid_tokens, target, target_scales, out, saturated };
            self.device().perform(&Launch::KvConvert(op))?;
            let mut bytes = vec![0; CacheSpec { format: target, ..spec }.page_bytes()];
            let mut counts = vec![0; spec.num_layers * spec.page_size];
            let mut targets =
                [(out, Target::Bytes(&mut bytes)), (saturated, Target::U32(&mut counts))];
            let ticket = self.device().start_read(&mut targets)?;
            arriving.push((ticket, bytes, counts));
        }
        // With the last one all of them are there.
        let mut converted = Vec::with_capacity(pages.len());
        for (ticket, mut bytes, mut counts) in arriving.into_iter().rev() {
            let mut targets =
                [(out, Target::Bytes(&mut bytes)), (saturated, Target::U32(&mut counts))];
            self.device().finish_read(ticket, &mut targets)?;
            let saturated = counts.into_iter().map(u64::from).sum();
            converted.push(ConvertedPage { bytes, saturated });
        }
        converted.reverse();
        Ok(converted)
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
        let arriving = self.start_digests(page, key)?;
        self.finish_digests(arriving)
    }

    /// Asks for the digests of a page as it lies in the cache now; whatever is asked later, they are
    /// those.
    ///
    /// # Errors
    /// [`DeviceError`] of the device.
    pub fn start_digests(
        &mut self,
        page: PageId,
        key: DigestKey,
    ) -> Result<ArrivingDigests, DeviceError> {
        let (cache, digests) = (self.cache(), self.work().page_digests);
        let launch = PageDigest { cache, page: page.0, key, digests };
        self.device().perform(&Launch::PageDigest(launch))?;
        let mut values = vec![0; self.cache_spec().num_layers];
        let ticket = self.device().start_read(&mut [(digests, Target::U64(&mut values))])?;
        Ok(ArrivingDigests { ticket, values })
    }

    /// Waits for digests.
    ///
    /// # Errors
    /// [`DeviceError`] of the device.
    pub fn finish_digests(&mut self, arriving: ArrivingDigests) -> Result<Vec<u64>, DeviceError> {
        let ArrivingDigests { ticket, mut values } = arriving;
        let digests = self.work().page_digests;
        self.device().finish_read(ticket, &mut [(digests, Target::U64(&mut values))])?;
        Ok(values)
    }
}
