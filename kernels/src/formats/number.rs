//! Numbers that more than one format stores, as the types that kernels name them by. A number that
//! one format alone stores is declared in the file of that format.

use tessera_kernel_dsl::number_format;

number_format! {
    /// IEEE binary32, stored.
    pub F32 = Element::F32
}
number_format! {
    /// IEEE binary16.
    pub F16 = Element::F16
}
number_format! {
    /// The upper half of binary32.
    pub Bf16 = Element::Bf16
}
number_format! {
    /// OCP FP8 E4M3.
    pub E4M3 = Element::F8E4M3
}
number_format! {
    /// OCP FP8 E5M2.
    pub E5M2 = Element::F8E5M2
}
number_format! {
    /// OCP FP4 E2M1.
    pub E2M1 = Element::F4E2M1
}
number_format! {
    /// Integers in -8..=7.
    pub I4 = Element::I4
}
number_format! {
    /// Sixteen-bit integers.
    pub I16 = Element::I16
}
