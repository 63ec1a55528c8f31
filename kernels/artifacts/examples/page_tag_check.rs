//! What the page-tag check costs a page, for `cargo xtask bench tags`: 64 sequences of 128 pages
//! each, in an order that a cache in use has, on one thread. All tags agree, as they should.

use std::time::Instant;
use tessera_kernel_artifacts::cpu::PageTagCheck;
use tessera_lanes::exec::Cpu;
use tessera_lanes::isa::AnyIsa;
use tessera_lanes::{Pool, View, ViewMut};

const SEQS: usize = 64;
const PAGES_PER_SEQ: usize = 128;
const PAGES: usize = SEQS * PAGES_PER_SEQ;
const PASSES: usize = 2000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A step that is no divisor of the number of pages visits each once, far from the last.
    let table: Vec<i32> =
        (0..PAGES).map(|i| i32::try_from(i * 5_381 % PAGES)).collect::<Result<_, _>>()?;
    let tags: Vec<u64> =
        (0..PAGES as u64).map(|page| page.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    let expected: Vec<u64> = table
        .iter()
        .map(|&page| Ok(tags[usize::try_from(page)?]))
        .collect::<Result<_, std::num::TryFromIntError>>()?;
    let num_pages = vec![i32::try_from(PAGES_PER_SEQ)?; SEQS];
    let starts: Vec<i32> = (0..=SEQS).map(i32::try_from).collect::<Result<_, _>>()?;
    println!("{SEQS} sequences of {PAGES_PER_SEQ} pages, one thread, best of {PASSES} passes");
    for isa in AnyIsa::available() {
        let cpu = Cpu::new(isa, Pool::of_caller());
        let (mut mismatch, mut slots) = (vec![0; SEQS], vec![0; SEQS]);
        let mut best = f64::INFINITY;
        for _ in 0..PASSES {
            let launch = PageTagCheck {
                tags: View::new(&tags, [PAGES]),
                block_table: View::new(&table, [SEQS, PAGES_PER_SEQ]),
                expected: View::new(&expected, [SEQS, PAGES_PER_SEQ]),
                num_pages: View::new(&num_pages, [SEQS]),
                cu_seqlens_q: View::new(&starts, [SEQS + 1]),
                mismatch: ViewMut::new(&mut mismatch, [SEQS]),
                slot_mapping: ViewMut::new(&mut slots, [SEQS]),
            };
            best = best.min(seconds(|| launch.launch(&cpu))?);
        }
        assert!(mismatch.iter().all(|&first| first == -1), "all tags agree");
        let page = best * 1e9 / PAGES as f64;
        println!("{:>12}: {page:.2} ns a page, {:.1} us a step", isa.name(), best * 1e6);
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn seconds<E>(work: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}
