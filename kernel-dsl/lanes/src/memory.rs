//! Memory for weights: anonymous, zeroed, in pages of 2 MiB where the system gives them.
//!
//! A mapped file lies in pages of 4 KiB, and reading it misses the TLB all the time, which costs a
//! large part of the bandwidth that decoding lives on. Weights are written here once when they are
//! packed. Where the system has no large pages the same memory comes in small ones: slower, never
//! wrong, and [`HugeBuffer::huge_bytes`] tells.

use memmap2::MmapMut;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// Size and alignment of a large page.
pub const HUGE_PAGE: usize = 2 << 20;
/// Alignment of what an arena hands out: a cache line, and the widest vector.
pub const ALIGN: usize = 64;
/// What an arena asks the system for at a time, unless one buffer needs more.
const MAPPING_BYTES: usize = 64 << 20;

/// The system has no memory to give.
#[derive(Debug, thiserror::Error)]
#[error("{bytes} bytes of memory in large pages")]
pub struct MemoryError {
    /// Asked for.
    pub bytes: usize,
    /// What the system said.
    pub source: io::Error,
}

/// Zeroed bytes that their owner alone may write, aligned to [`ALIGN`] at least.
#[derive(Debug)]
pub struct HugeBuffer {
    start: NonNull<u8>,
    len: usize,
    mapping: Arc<Mapping>,
}

/// Hands out buffers that share large mappings, so that small weights do not take a page each.
/// A mapping lives until the last buffer in it is dropped.
#[derive(Debug, Default)]
pub struct Arena {
    /// The mapping that is being handed out, and how many of its bytes are taken.
    current: Mutex<Option<(Arc<Mapping>, usize)>>,
}

/// One anonymous mapping; `start` is its first address on a large page.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    len: usize,
    /// Unmaps when dropped; touched in no other way.
    _map: MmapMut,
}

/// Numbers that any bytes are a value of.
pub trait Plain: Copy + sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! plain {
    ($($ty:ty)*) => { $(
        impl sealed::Sealed for $ty {}
        impl Plain for $ty {}
    )* };
}
plain!(u8 i8 u16 i16 u32 i32 f32 u64 i64);

#[expect(unsafe_code, reason = "a buffer owns its part of a mapping")]
// SAFETY: `start` leads to memory that `mapping` keeps, and no other buffer has this part of it.
unsafe impl Send for HugeBuffer {}

#[expect(unsafe_code, reason = "a buffer owns its part of a mapping")]
// SAFETY: as above; through a shared reference it is only read.
unsafe impl Sync for HugeBuffer {}

#[expect(unsafe_code, reason = "a mapping is only an address until buffers are made of it")]
// SAFETY: `start` is never read through a mapping itself.
unsafe impl Send for Mapping {}

#[expect(unsafe_code, reason = "a mapping is only an address until buffers are made of it")]
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps at least `len` bytes, which must not be 0.
    fn new(len: usize) -> Result<Self, MemoryError> {
        let error = |source| MemoryError { bytes: len, source };
        let rounded = len.checked_next_multiple_of(HUGE_PAGE);
        let padded = rounded.and_then(|len| Some((len, len.checked_add(HUGE_PAGE)?)));
        let Some((len, padded)) = padded else {
            return Err(error(io::ErrorKind::OutOfMemory.into()));
        };
        let mut map = MmapMut::map_anon(padded).map_err(error)?;
        let skip = map.as_ptr().align_offset(HUGE_PAGE);
        advise(&map, skip, len);
        let start = NonNull::from(&mut map[skip..skip + len]).cast();
        Ok(Self { start, len, _map: map })
    }
}

/// Asks for large pages. A system that knows none gives small ones, which `huge_bytes` then tells.
#[cfg(target_os = "linux")]
fn advise(map: &MmapMut, start: usize, len: usize) {
    let _ = map.advise_range(memmap2::Advice::HugePage, start, len);
}

#[cfg(not(target_os = "linux"))]
fn advise(_: &MmapMut, _: usize, _: usize) {}

impl HugeBuffer {
    /// A buffer that begins on a large page and shares it with no other.
    ///
    /// # Errors
    /// [`MemoryError`] if the system has no memory to give.
    pub fn zeroed(len: usize) -> Result<Self, MemoryError> {
        let mapping = Arc::new(Mapping::new(len.max(1))?);
        Ok(Self { start: mapping.start, len, mapping })
    }

    /// The bytes as numbers, native-endian.
    ///
    /// # Panics
    /// If they are not a whole number of them.
    pub fn as_plain<T: Plain>(&self) -> &[T] {
        #[expect(unsafe_code, reason = "bytes as numbers")]
        // SAFETY: any bytes are a value of a `Plain` type.
        let (before, numbers, after) = unsafe { self.align_to::<T>() };
        assert!(before.is_empty() && after.is_empty(), "{} bytes as {}", self.len, size_of::<T>());
        numbers
    }

    /// As [`HugeBuffer::as_plain`], to be written.
    ///
    /// # Panics
    /// As [`HugeBuffer::as_plain`].
    pub fn as_plain_mut<T: Plain>(&mut self) -> &mut [T] {
        let len = self.len;
        #[expect(unsafe_code, reason = "bytes as numbers")]
        // SAFETY: any bytes are a value of a `Plain` type, and any value of one is bytes.
        let (before, numbers, after) = unsafe { self.align_to_mut::<T>() };
        assert!(before.is_empty() && after.is_empty(), "{len} bytes as {}", size_of::<T>());
        numbers
    }

    /// How much of the mapping that this buffer is part of lies in large pages now, as the system
    /// tells; `None` where it does not. Pages exist once they are written.
    pub fn huge_bytes(&self) -> Option<usize> {
        let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        huge_bytes(&maps, self.mapping.start.addr().get())
    }
}

/// `AnonHugePages` of the mapping that holds `address`.
fn huge_bytes(smaps: &str, address: usize) -> Option<usize> {
    let holds = |line: &str| {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        let bound = |hex| usize::from_str_radix(hex, 16).ok();
        Some((bound(start)?..bound(end)?).contains(&address))
    };
    let lines = smaps.lines().skip_while(|line| holds(line) != Some(true));
    let mut sizes = lines.filter_map(|line| line.strip_prefix("AnonHugePages:"));
    let kib: usize = sizes.next()?.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

impl Deref for HugeBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        #[expect(unsafe_code, reason = "a buffer owns its part of a mapping")]
        // SAFETY: `mapping` holds `len` initialized bytes from `start`, which no other buffer has.
        unsafe {
            std::slice::from_raw_parts(self.start.as_ptr(), self.len)
        }
    }
}

impl DerefMut for HugeBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        #[expect(unsafe_code, reason = "a buffer owns its part of a mapping")]
        // SAFETY: as for `deref`, and this buffer is borrowed exclusively.
        unsafe {
            std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len)
        }
    }
}

impl Arena {
    /// An arena that holds no memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A zeroed buffer of `len` bytes.
    ///
    /// # Errors
    /// [`MemoryError`] if the system has no memory to give.
    pub fn take(&self, len: usize) -> Result<HugeBuffer, MemoryError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |(mapping, taken): &(Arc<Mapping>, usize)| len <= mapping.len - taken;
        if !current.as_ref().is_some_and(fits) {
            *current = Some((Arc::new(Mapping::new(len.max(MAPPING_BYTES))?), 0));
        }
        let (mapping, taken) = current.as_mut().expect("a mapping was just made");
        #[expect(unsafe_code, reason = "a mapping is cut into buffers")]
        // SAFETY: `taken` is at most the mapping's length.
        let start = unsafe { mapping.start.add(*taken) };
        *taken = (*taken + len).next_multiple_of(ALIGN).min(mapping.len);
        Ok(HugeBuffer { start, len, mapping: mapping.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_zeroed_aligned_and_its_own() {
        let arena = Arena::new();
        let mut buffers: Vec<HugeBuffer> =
            [1, 64, 65, 0, 4096].iter().map(|&len| arena.take(len).unwrap()).collect();
        for (value, buffer) in (1_u8..).zip(&mut buffers) {
            assert!(buffer.iter().all(|&byte| byte == 0));
            assert_eq!(buffer.as_ptr().align_offset(ALIGN), 0);
            buffer.fill(value);
        }
        drop(arena);
        for (value, buffer) in (1_u8..).zip(&buffers) {
            assert!(buffer.iter().all(|&byte| byte == value));
        }
    }

    #[test]
    fn small_buffers_share_a_mapping_and_a_large_one_has_its_own() {
        let arena = Arena::new();
        let [a, b, large] = [8, 8, MAPPING_BYTES + 1].map(|len| arena.take(len).unwrap());
        assert!(Arc::ptr_eq(&a.mapping, &b.mapping));
        assert!(!Arc::ptr_eq(&a.mapping, &large.mapping));
        assert_eq!(large.len(), MAPPING_BYTES + 1);
    }

    #[test]
    fn bytes_are_numbers() {
        let mut buffer = HugeBuffer::zeroed(8).unwrap();
        assert_eq!(buffer.as_ptr().align_offset(HUGE_PAGE), 0);
        buffer.as_plain_mut::<f32>()[1] = 1.5;
        assert_eq!(buffer[4..], 1.5_f32.to_ne_bytes());
        assert_eq!(buffer.as_plain::<f32>(), [0.0, 1.5]);
    }

    #[test]
    #[should_panic(expected = "7 bytes as 4")]
    fn bytes_that_are_no_numbers_are_refused() {
        HugeBuffer::zeroed(7).unwrap().as_plain::<f32>();
    }

    #[test]
    fn no_memory_is_an_error_that_says_how_much() {
        let error = HugeBuffer::zeroed(usize::MAX / 4).unwrap_err();
        assert_eq!(error.to_string(), format!("{} bytes of memory in large pages", usize::MAX / 4));
        assert!(HugeBuffer::zeroed(usize::MAX).is_err());
    }

    #[test]
    fn large_pages_are_found_in_the_systems_listing() {
        let maps = "7f0000000000-7f0000200000 rw-p 00000000 00:00 0\nAnonHugePages:      0 kB\n\
                    7f0000400000-7f0000800000 rw-p 00000000 00:00 0\nSize: 4096 kB\n\
                    AnonHugePages:      2048 kB\n";
        assert_eq!(huge_bytes(maps, 0x7f00_0050_0000), Some(2 << 20));
        assert_eq!(huge_bytes(maps, 0x7f00_0000_0000), Some(0));
        assert_eq!(huge_bytes(maps, 0x7f00_0080_0000), None);
    }
}
