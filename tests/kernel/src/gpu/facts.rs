//! What must be true of kernels' machine code, whatever else changes: held against every usable
//! variant of every build. A figure that gets worse is the baseline's matter; here is what a kernel
//! was written for.

use super::generate::Variant;
use super::sass::{Instruction, Sass};
use tessera_kernel_cpu::SourceLine;
use tessera_ptx::isa::forms;

/// Something that must be true.
#[derive(Debug, Clone, Copy)]
pub enum Fact {
    /// A matrix unit multiplies.
    MatrixUnit,
    /// The loop at the first line of the kernel's file that begins like this reads global memory
    /// 16 bytes a thread at a time, at so many places at least.
    WideLoads {
        /// How the line of the `for` begins.
        at: &'static str,
        /// Number of instructions.
        least: usize,
    },
    /// No product and sum were made one instruction that rounds once, unless the kernel says so.
    NotContracted,
    /// Nothing lies in local memory.
    NoLocalMemory,
}

/// Which kernels a fact is about, and the fact.
type Row = (&'static [&'static str], Fact);

/// Kernels with a dot.
const DOTS: &[&str] = &[
    "absorb_query",
    "absorb_value",
    "gqa_prefill",
    "mla_decode",
    "mla_prefill",
    "w_gemm",
    "w_gemm_grouped",
];

/// Every fact. An empty list of kernels is all of them.
pub const FACTS: &[Row] = &[
    (&[], Fact::NoLocalMemory),
    (&[], Fact::NotContracted),
    (DOTS, Fact::MatrixUnit),
    // Activations; codes of six bits cannot be, others are as well.
    (&["w_gemm", "w_gemm_grouped"], Fact::WideLoads { at: "for k in range(", least: 1 }),
    (&["mla_decode"], Fact::WideLoads { at: "for first in range(", least: 1 }),
    // The expected tags, two a thread.
    (&["page_tag_check"], Fact::WideLoads { at: "for j in range(", least: 1 }),
];

/// What is not true of a variant that should be.
pub fn broken(variant: &Variant, sass: &Sass, read: &dyn Fn(&str) -> Vec<String>) -> Vec<String> {
    let name = variant.label.split(['<', '[']).next().unwrap_or_default();
    let about = |kernels: &[&str]| kernels.is_empty() || kernels.contains(&name);
    let own = FACTS.iter().filter(|(kernels, _)| about(kernels));
    own.filter_map(|(_, fact)| fact.broken(variant, sass, read)).collect()
}

impl Fact {
    /// Why it does not hold.
    fn broken(
        self,
        variant: &Variant,
        sass: &Sass,
        read: &dyn Fn(&str) -> Vec<String>,
    ) -> Option<String> {
        match self {
            Self::MatrixUnit => {
                let products = sass.products();
                let message = format!("products by {products}, not by a matrix unit");
                (!products.by_matrix_unit()).then_some(message)
            }
            Self::NoLocalMemory => sass.uses_local_memory().then(|| "uses local memory".to_owned()),
            Self::NotContracted => contracted(variant, sass),
            Self::WideLoads { at, least } => narrow(variant, sass, read, (at, least)),
        }
    }
}

/// Single-precision `FFMA` where the PTX asks for nothing that is made of them.
fn contracted(variant: &Variant, sass: &Sass) -> Option<String> {
    let made_of_fma = ["fma.", "div.", "sqrt.", "rcp.", "rsqrt.", "rem.", "mad."];
    let asks = |form: &&str| made_of_fma.iter().any(|begin| form.starts_with(begin));
    if forms(&variant.ptx).iter().any(asks) {
        return None;
    }
    let fused = sass.count(|i| i.base() == "FFMA" && !i.text.contains("RZ"));
    (fused > 0).then(|| format!("{fused} FFMA, and its PTX asks for none"))
}

fn narrow(
    variant: &Variant,
    sass: &Sass,
    read: &dyn Fn(&str) -> Vec<String>,
    (at, least): (&str, usize),
) -> Option<String> {
    let file = SourceLine::of(variant.source.as_ref()?.kernel.loc).file;
    let lines = read(&file);
    let line = lines.iter().zip(1_u32..).find(|(text, _)| text.trim_start().starts_with(at));
    let Some((_, line)) = line else { return Some(format!("{file} has no line `{at}..`")) };
    let Some(of) = sass.loop_at(&file, line) else {
        return Some(format!("no loop comes from {file}:{line}"));
    };
    let wide = |i: &&Instruction| i.loads_global() && i.moves_16_bytes();
    let got = sass.within(of).filter(wide).count();
    (got < least).then(|| {
        format!("the loop at {file}:{line} has {got} loads of 16 bytes, not {least} or more")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::generate::variants;
    use std::path::Path;
    use tessera_ptx::Sm;

    const FUSED: &str = "/*0000*/ FFMA R1, R2, R3, R4 ;\n";

    fn by_hand(ptx: &str) -> Variant {
        let (label, ptx) = ("k<e4m3>".to_owned(), ptx.to_owned());
        Variant { label, ptx, threads: 32, shared_bytes: 0, source: None }
    }

    fn check(fact: Fact, ptx: &str, sass: &str, want: Option<&str>) {
        let none = |_: &str| Vec::new();
        let got = fact.broken(&by_hand(ptx), &Sass::parse(sass), &none);
        assert_eq!(got.as_deref(), want);
    }

    #[test]
    fn a_contraction_is_noticed() {
        let want = "1 FFMA, and its PTX asks for none";
        check(Fact::NotContracted, "\tmul.rn.f32 %r1, %r2, %r3;\n", FUSED, Some(want));
        check(Fact::NotContracted, "\tfma.rn.f32 %r1, %r2, %r3, %r4;\n", FUSED, None);
        check(Fact::NotContracted, "\tdiv.rn.f32 %r1, %r2, %r3;\n", FUSED, None);
    }

    #[test]
    fn a_dot_without_its_unit_is_noticed() {
        let want = "products by FMA 1, not by a matrix unit";
        check(Fact::MatrixUnit, "", FUSED, Some(want));
        check(Fact::MatrixUnit, "", "/*0000*/ HGMMA.64x8x16.F32 R8, R4 ;\n", None);
    }

    #[test]
    fn local_memory_is_noticed() {
        check(Fact::NoLocalMemory, "", FUSED, None);
        check(Fact::NoLocalMemory, "", "/*0000*/ LDL R1, [R2] ;", Some("uses local memory"));
    }

    #[test]
    fn narrow_loads_are_noticed() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let all = variants(Sm::Sm90a, "swiglu", root).variants;
        let loads = |end: &str| {
            let file = "kernels/src/tiles/swiglu.rs";
            format!(
                ".L_a:\n//## File \"{file}\", line 2\n/*0000*/ LDG.E{end} R4, [R2.64] ;\n\
                 /*0010*/ @P0 BRA `(.L_a) ;\n"
            )
        };
        let fact = Fact::WideLoads { at: "for k in", least: 1 };
        let broken = |text: &str, sass: &str| {
            let read = |_: &str| text.lines().map(str::to_owned).collect();
            fact.broken(&all[0], &Sass::parse(sass), &read)
        };
        assert_eq!(broken("fn f() {\n    for k in x {", &loads(".128.CONSTANT")), None);
        let narrow = broken("fn f() {\n    for k in x {", &loads(".64")).unwrap();
        assert!(narrow.contains("swiglu.rs:2 has 0 loads of 16 bytes"), "{narrow}");
        let elsewhere = broken("fn f() {\n    one();\n    for k in x {", &loads(".64")).unwrap();
        assert!(elsewhere.contains("no loop comes from"), "{elsewhere}");
        assert!(broken("", &loads(".64")).unwrap().contains("has no line `for k in..`"));
    }

    #[test]
    fn facts_are_about_kernels_that_there_are() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        for kernel in FACTS.iter().flat_map(|(kernels, _)| *kernels) {
            let found = variants(Sm::Sm90a, kernel, root).variants;
            assert!(!found.is_empty(), "{kernel}");
        }
    }
}
