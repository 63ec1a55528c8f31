//! The manifest: what a host must know of compiled kernels to launch them.
//!
//! It is the whole interface between what the build made and who launches it. Arguments of an
//! entry are words of eight bytes, in this order:
//!
//! ```text
//! faults       address of a u32: 0, or 1 + the index in `asserts` of the first assert that failed
//! dims         each named extent, i64
//! params       each in turn:
//!   scalar       its value: f32 bits in the low half, integers extended by their sign or by zeros
//!   view         address of its first element, then the stride of each axis but the last, in
//!                elements; the last axis is contiguous
//!   packed view  addresses of codes, of scales, of zero points and of tensor scales, an f32 for
//!                each matrix of the view; 0 for what the format has not
//! ```
//! Codes of a packed view lie as a weight's parts do: rows of whole bytes, the scales of each row of
//! scale tiles after one another, a third axis outermost.

use crate::extents::Expr;
use serde::{Deserialize, Serialize};

/// All kernels built for one target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Target as PTX names it, such as `sm_90a`.
    pub target: String,
    /// Every variant of every kernel; those of one kernel in order of preference.
    pub kernels: Vec<KernelEntry>,
}

/// One compiled variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelEntry {
    /// Name of the kernel.
    pub kernel: String,
    /// Name of the variant, such as `w_gemm<int4-g32>[WARPS=4]`.
    pub label: String,
    /// Name of the entry in the PTX.
    pub entry: String,
    /// File of the PTX, beside the manifest.
    pub file: String,
    /// Formats it was built for, in the order of the kernel's type parameters.
    pub formats: Vec<String>,
    /// What it promises of its results: `exact`, `model` or `bounded`.
    pub class: String,
    /// Hash of the source it was built from, in hexadecimal.
    pub source_hash: String,
    /// Names of its extents.
    pub dims: Vec<String>,
    /// Its parameters in order.
    pub params: Vec<ParamEntry>,
    /// Number of programs along x, y and z.
    pub grid: [Expr; 3],
    /// Threads of a program.
    pub threads: u32,
    /// Dynamic shared memory of a program, in bytes.
    pub shared_bytes: u32,
    /// All must be other than 0, or the launch is for another variant.
    pub fits: Vec<Expr>,
    /// Asserts by index.
    pub asserts: Vec<AssertEntry>,
}

/// A parameter of a kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ParamEntry {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: ParamEntryKind,
}

/// What a parameter is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParamEntryKind {
    /// A number: `f32`, `i32`, `i64`, `u32`, `u64` or `bool`.
    Scalar(String),
    /// An array.
    View {
        /// `f32`, `i32`, `i64`, `u32` or `u64`; the name of a number format for codes.
        elem: String,
        /// Bits of an element.
        bits: u32,
        /// Whether the kernel writes it.
        written: bool,
        /// What each axis measures: extents by index, and a constant on top.
        axes: Vec<AxisEntry>,
    },
    /// Codes and scales of a block format.
    Packed {
        /// Name of the format.
        format: String,
        /// What each axis measures.
        axes: Vec<AxisEntry>,
    },
}

/// `constant + dims`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the two parts of a sum")]
pub struct AxisEntry {
    pub dims: Vec<usize>,
    pub constant: usize,
}

/// An assert of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssertEntry {
    /// The author's message.
    pub message: String,
    /// Where it stands.
    pub place: String,
}
