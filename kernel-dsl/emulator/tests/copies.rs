//! Asynchronous copies under every schedule.

#![allow(
    clippy::cast_possible_truncation,
    reason = "slots hold 64 bits of which a form's width is meant"
)]

mod harness;

use harness::{Bench, SCHEDULES, module};
use tessera_emulator::Schedule;

fn schedules() -> impl Iterator<Item = Schedule> {
    SCHEDULES.into_iter().chain((10..40).map(Schedule::Random))
}

#[test]
fn a_ring_of_groups_sums_its_tiles() {
    let module = module("copies.ptx");
    for schedule in schedules() {
        for tiles in [1u32, 2, 3, 7] {
            let mut bench = Bench::new(schedule);
            let input: Vec<u32> = (0..tiles * 128).map(|i| i * 7 + i % 13).collect();
            let (pin, pout) = (bench.buffer(&input), bench.empty(512));
            let params = [pin, pout, u64::from(tiles)];
            bench.launch(&module, "ring", (1, 128, 3 * 512), &params).unwrap();
            let sum = |t: usize| input.chunks(128).map(|tile| tile[127 - t]).sum::<u32>();
            let want: Vec<u32> = (0..128).map(sum).collect();
            assert_eq!(bench.read::<u32>(pout, 128), want, "{schedule:?} {tiles}");
        }
    }
}

#[test]
fn copies_are_cut_and_filled_with_zeros() {
    let module = module("copies.ptx");
    for schedule in SCHEDULES {
        let mut bench = Bench::new(schedule);
        let input: Vec<u8> = (0..512u32).map(|i| (i % 255 + 1) as u8).collect();
        let (pin, pout) = (bench.buffer(&input), bench.empty(1024));
        bench.launch(&module, "partial", (1, 32, 1024), &[pin, pout]).unwrap();
        let got = bench.read::<u8>(pout, 1024);
        for (i, &byte) in input.iter().enumerate() {
            let (lane, at) = (i / 16, i % 16);
            assert_eq!(got[i], if at < lane.min(16) { byte } else { 0 });
            assert_eq!(got[512 + i], if lane % 2 == 0 { byte } else { 0 });
        }
    }
}

#[test]
fn a_producer_hands_stages_to_consumers() {
    let module = module("copies.ptx");
    for schedule in schedules() {
        let mut bench = Bench::new(schedule);
        let tiles = 5u32;
        let input: Vec<u32> = (0..tiles * 512).map(|i| i * 3 + 1).collect();
        let (pin, pout) = (bench.buffer(&input), bench.empty(u64::from(tiles) * 2048));
        let params = [pin, pout, u64::from(tiles)];
        let outcome = bench.launch(&module, "producer", (1, 128, 3 * 2048), &params);
        outcome.unwrap_or_else(|fault| panic!("{schedule:?}: {fault}"));
        let want: Vec<u32> = input.iter().map(|x| x * 2).collect();
        assert_eq!(bench.read::<u32>(pout, want.len()), want, "{schedule:?}");
    }
}

#[test]
fn copies_arrive_at_barriers() {
    let module = module("copies.ptx");
    for schedule in schedules() {
        let mut bench = Bench::new(schedule);
        let input: Vec<u32> = (0..256).collect();
        let (pin, pout) = (bench.buffer(&input), bench.empty(1024));
        let outcome = bench.launch(&module, "arrivals", (1, 64, 2048), &[pin, pout]);
        outcome.unwrap_or_else(|fault| panic!("{schedule:?}: {fault}"));
        let got = bench.read::<u32>(pout, 256);
        for t in 0..64 {
            let from = (63 - t as u32) * 4;
            assert_eq!(got[t * 4..t * 4 + 4], [from, from + 1, from, from + 1]);
        }
    }
}
