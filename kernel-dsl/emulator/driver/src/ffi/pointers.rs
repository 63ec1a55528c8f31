//! Pointers that a program passes to the driver. They are arguments of the exported functions in
//! place of raw pointers; every read and write of the program's memory goes through a method here
//! or in `host`.
//!
//! What makes each access sound is CUDA's contract: whoever calls an exported function promises
//! that a pointer argument is null or points to memory of the size and kind that the interface
//! states, valid for the length of the call. Null is checked; the rest cannot be.

use crate::code::{Code, Outcome, ensure};
use std::ffi::{CStr, c_char, c_void};

/// Where a result goes.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

/// A value, or an array, to read.
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

/// A C string to read.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Text(*const c_char);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Out<T> {}
impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for In<T> {}

impl<T: Copy> Out<T> {
    /// A place that a program named as a number; 0 is none.
    pub(crate) fn at(address: usize) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(address))
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn set(self, value: T) -> Outcome {
        ensure(!self.is_null(), Code::ERROR_INVALID_VALUE)?;
        // SAFETY: not null, so by the contract of the exported function that took it, it points to
        // a `T` that may be written; `write_unaligned` asks for no alignment.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// As [`Self::set`], where null means that the caller does not want to know.
    pub(crate) fn offer(self, value: T) -> Outcome {
        if self.is_null() { Ok(()) } else { self.set(value) }
    }

    /// Writes the element `index` of an array; the caller has checked it against the length that
    /// came with the pointer.
    pub(crate) fn set_at(self, index: usize, value: T) -> Outcome {
        Out(self.0.wrapping_add(index)).set(value)
    }

    /// What the program left there.
    pub(crate) fn read(self) -> Outcome<T> {
        In(self.0.cast_const()).read()
    }
}

impl<T> In<T> {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl<T: Copy> In<T> {
    /// A place that a program named inside of a structure, as a number.
    pub(crate) fn at(address: usize) -> Self {
        Self(std::ptr::with_exposed_provenance(address))
    }

    pub(crate) fn read(self) -> Outcome<T> {
        ensure(!self.is_null(), Code::ERROR_INVALID_VALUE)?;
        // SAFETY: not null, so by the contract of the exported function that took it, it points to
        // a `T`, all of whose bit patterns are valid for the numbers and plain structures used
        // here; `read_unaligned` asks for no alignment.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// An array of a length that the program also gave; null only if that is zero.
    pub(crate) fn array(self, len: usize) -> Outcome<Vec<T>> {
        (0..len).map(|index| In(self.0.wrapping_add(index)).read_if(self)).collect()
    }

    fn read_if(self, base: Self) -> Outcome<T> {
        ensure(!base.is_null(), Code::ERROR_INVALID_VALUE)?;
        self.read()
    }
}

impl Out<c_void> {
    /// The place as one for a `T`, where the type depends on another argument.
    pub(crate) fn of<T: Copy>(self) -> Out<T> {
        Out(self.0.cast())
    }
}

impl In<c_void> {
    /// The address itself.
    pub(crate) fn address(self) -> usize {
        self.0.expose_provenance()
    }
}

impl<T> Out<T> {
    pub(crate) fn address(self) -> usize {
        self.0.expose_provenance()
    }
}

/// Bytes at an address that came as a number: a kernel parameter or a module's image.
pub(crate) fn bytes_at(address: usize, len: usize) -> Outcome<Vec<u8>> {
    In::<u8>::at(address).array(len)
}

/// A C string at an address that came as a number.
pub(crate) fn text_at(address: usize) -> Outcome<String> {
    Text(std::ptr::with_exposed_provenance(address)).read()
}

/// Writes a C string into a buffer of `len` bytes, cut to fit.
pub(crate) fn write_text(to: Out<c_char>, len: usize, text: &str) -> Outcome {
    ensure(len > 0, Code::ERROR_INVALID_VALUE)?;
    let kept = text.as_bytes().iter().take(len - 1).copied().chain([0]);
    for (index, byte) in kept.enumerate() {
        to.set_at(index, byte.cast_signed())?;
    }
    Ok(())
}

/// Writes a C string at an address that came as a number.
pub(crate) fn write_text_at(address: usize, len: usize, text: &str) -> Outcome {
    write_text(Out::at(address), len, text)
}

impl Text {
    pub(crate) fn read(self) -> Outcome<String> {
        ensure(!self.0.is_null(), Code::ERROR_INVALID_VALUE)?;
        // SAFETY: not null, so by the contract of the exported function that took it, it is a C
        // string; it is copied before the function returns.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map(str::to_owned).map_err(|_| Code::ERROR_INVALID_VALUE)
    }
}
