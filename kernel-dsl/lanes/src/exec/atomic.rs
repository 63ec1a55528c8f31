//! Read-modify-write of one element, from any thread.

use crate::view::ViewMut;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64};

/// An element that can be updated atomically. What a launch leaves in memory is seen by whoever
/// waits for the launch, so no update orders anything else.
pub trait AtomicElem: Copy + Sized {
    /// Replaces the element at `place` by `f` of it.
    ///
    /// # Safety
    /// `place` points to an element that lives, is aligned, and is accessed by nothing but atomics
    /// while the launch runs.
    #[expect(unsafe_code, reason = "the address comes from a view")]
    unsafe fn update(place: *mut Self, f: impl Fn(Self) -> Self);
}

macro_rules! atomic_elem {
    ($($elem:ty, $atomic:ty, $to:expr, $from:expr;)*) => {$(
        impl AtomicElem for $elem {
            #[inline]
            #[expect(unsafe_code, reason = "the address comes from a view")]
            unsafe fn update(place: *mut Self, f: impl Fn(Self) -> Self) {
                // SAFETY: the caller's promise; the atomic has the size and alignment of `Self`.
                let atomic = unsafe { <$atomic>::from_ptr(place.cast()) };
                let mut old = atomic.load(Relaxed);
                loop {
                    let new = ($from)(f(($to)(old)));
                    match atomic.compare_exchange_weak(old, new, Relaxed, Relaxed) {
                        Ok(_) => return,
                        Err(now) => old = now,
                    }
                }
            }
        }
    )*};
}

atomic_elem! {
    f32, AtomicU32, f32::from_bits, f32::to_bits;
    i32, AtomicI32, |x| x, |x| x;
    u32, AtomicU32, |x| x, |x| x;
    i64, AtomicI64, |x| x, |x| x;
    u64, AtomicU64, |x| x, |x| x;
}

impl<T: AtomicElem, const R: usize> ViewMut<'_, T, R> {
    /// Replaces an element by `f` of it, atomically; nothing if it is outside.
    #[inline]
    #[expect(unsafe_code, reason = "the address comes from the view")]
    pub fn update(&self, at: [i64; R], f: impl Fn(T) -> T) {
        if let Some(place) = self.place(at) {
            // SAFETY: `place` is inside the array that the view borrows; a kernel accesses a view
            // that it updates atomically in no other way, which the evaluator checks.
            unsafe { T::update(place, f) }
        }
    }
}
