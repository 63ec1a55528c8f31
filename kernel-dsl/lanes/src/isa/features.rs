//! The CPU features of each instruction set, listed once: what `detect` looks for is what code is
//! compiled with.

/// Gives the features of an instruction set to another macro, before its arguments.
macro_rules! features {
    (Scalar, $then:ident $args:tt) => {
        $then! { [] $args }
    };
    (Avx2, $then:ident $args:tt) => {
        $then! { ["avx2" "fma" "f16c"] $args }
    };
    (Avx512, $then:ident $args:tt) => {
        $then! {
            ["avx512f" "avx512bw" "avx512dq" "avx512vl" "avx512vnni" "fma" "f16c"] $args
        }
    };
    (Neon, $then:ident $args:tt) => {
        $then! { ["neon"] $args }
    };
}

/// Whether the CPU has every feature of an instruction set, by the named macro of `std::arch`.
macro_rules! detected {
    ([$($feature:tt)*] { $detected:ident }) => { $($detected!($feature))&&* };
    ($isa:ident, $detected:ident) => { features!($isa, detected { $detected }) };
}

/// The function, compiled for an instruction set.
macro_rules! compiled_for {
    ([$($feature:tt)*] { $($function:tt)* }) => {
        $(#[target_feature(enable = $feature)])*
        $($function)*
    };
    ($isa:ident; $($function:tt)*) => { features!($isa, compiled_for { $($function)* }); };
}

pub(crate) use {compiled_for, detected, features};
