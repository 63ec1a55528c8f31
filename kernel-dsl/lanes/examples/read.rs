//! How fast one thread reads memory in pages of 4 KiB and of 2 MiB, in turn.
//!
//! `cargo run --release -p tessera-lanes --example read [MIB]`

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;
use tessera_lanes::memory::HugeBuffer;

const ROUNDS: usize = 9;

fn main() -> Result<(), Box<dyn Error>> {
    let mib = std::env::args().nth(1).map_or(Ok(1024), |arg| arg.parse::<usize>())?;
    let mut small = memmap2::MmapMut::map_anon(mib << 20)?;
    let mut huge = HugeBuffer::zeroed(mib << 20)?;
    small.fill(1);
    huge.fill(1);
    let told = huge.huge_bytes().map_or("an unknown part".into(), |b| format!("{} MiB", b >> 20));
    println!("{mib} MiB each; of the second, {told} in large pages");
    let (mut best_small, mut best_huge) = (0.0_f64, 0.0_f64);
    for _ in 0..ROUNDS {
        best_small = best_small.max(gb_per_second(&small));
        best_huge = best_huge.max(gb_per_second(&huge));
    }
    println!("4 KiB pages {best_small:6.1} GB/s");
    println!("2 MiB pages {best_huge:6.1} GB/s ({:.2} times)", best_huge / best_small);
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn gb_per_second(bytes: &[u8]) -> f64 {
    let start = Instant::now();
    black_box(sum(black_box(bytes)));
    bytes.len() as f64 / start.elapsed().as_secs_f64() / 1e9
}

/// Adds the bytes up in eight streams, as a matrix kernel reads its panels.
fn sum(bytes: &[u8]) -> u64 {
    const LINE: usize = 64;
    let streams: Vec<&[u8]> = bytes.chunks_exact(bytes.len() / 8).collect();
    let mut sums = [0_u64; LINE / 8];
    let lines = streams[0].len() / LINE;
    for line in 0..lines {
        for stream in &streams {
            let words = stream[line * LINE..][..LINE].as_chunks::<8>().0;
            sums.iter_mut().zip(words).for_each(|(sum, word)| {
                *sum = sum.wrapping_add(u64::from_le_bytes(*word));
            });
        }
    }
    sums.iter().fold(0, |all, sum| all.wrapping_add(*sum))
}
