//! Exchanges between lanes, reductions at barriers, atomic operations.

#![allow(
    clippy::cast_possible_truncation,
    reason = "slots hold 64 bits of which a form's width is meant"
)]

mod harness;

use harness::{Bench, SCHEDULES, module};
use tessera_emulator::Schedule;

#[test]
fn lanes_tell_each_other() {
    let module = module("exchange.ptx");
    let input: Vec<u32> = (0..32u32).map(|i| i.wrapping_mul(0x9e37_79b9) ^ 0x1234_5678).collect();
    let mut bench = Bench::new(Schedule::Earliest);
    let (pin, pout) = (bench.buffer(&input), bench.empty(19 * 128));
    bench.launch(&module, "lanes", (1, 32, 0), &[pin, pout]).unwrap();
    let got = bench.read::<u32>(pout, 19 * 32);
    let at = |result: usize, lane: usize| got[result * 32 + lane];
    let group = |lane: usize| {
        let same = (0..32).filter(|&other: &usize| input[other] & 3 == input[lane] & 3);
        same.fold(0, |mask, other| mask | 1 << other)
    };
    for lane in 0..32 {
        let v = |lane: usize| input[lane];
        assert_eq!(at(0, lane), v(lane.max(1) - 1));
        assert_eq!(at(1, lane), u32::from(lane >= 1));
        assert_eq!(at(2, lane), v(if lane < 29 { lane + 3 } else { lane }));
        assert_eq!(at(3, lane), u32::from(lane < 29));
        assert_eq!(at(4, lane), v(lane ^ 5));
        // Segments of eight lanes.
        assert_eq!(at(5, lane), v(lane / 8 * 8 + 2));
        assert_eq!(at(6, lane), v(v(lane) as usize % 32));
        assert_eq!(at(7, lane), 0xaaaa_aaaa);
        assert_eq!(at(8, lane), 2);
        assert_eq!(at(9, lane), group(lane));
        assert_eq!(at(10, lane), 0);
        assert_eq!(at(11, lane), u32::MAX);
        assert_eq!(at(12, lane), input.iter().fold(0u32, |sum, &v| sum.wrapping_add(v)));
        assert_eq!(at(13, lane) as i32, input.iter().map(|&v| v as i32).min().unwrap());
        assert_eq!(at(14, lane), *input.iter().max().unwrap());
        assert_eq!(at(15, lane), input.iter().fold(0, |all, &v| all ^ v));
        assert_eq!(at(16, lane), if lane == 0 { 64 } else { 0 });
        assert_eq!(at(17, lane), u32::MAX);
        let upper = lane & 4 != 0;
        assert_eq!(at(18, lane), if upper { 0xf0f0_f0f0 } else { 0x1b });
    }
}

#[test]
fn atomics_leave_what_all_did() {
    let module = module("exchange.ptx");
    for schedule in SCHEDULES {
        let mut bench = Bench::new(schedule);
        let words = bench.buffer(&[0u32; 24]);
        bench.machine.write(words + 8, &u32::MAX.to_le_bytes()).unwrap();
        bench.machine.write(words + 20, &0xffu32.to_le_bytes()).unwrap();
        let out = bench.empty(16);
        bench.launch(&module, "atomics", (1, 64, 0), &[words, out]).unwrap();
        let got = bench.read::<u32>(words, 24);
        let all = 1..=64u32;
        assert_eq!(got[0], all.clone().sum::<u32>());
        assert_eq!(got[1..3], [64, 1]);
        assert_eq!(got[3], all.clone().fold(0, |x, v| x ^ v));
        assert_eq!(got[4], 127);
        assert_eq!(got[5], 0);
        // 64 steps of a counter that wraps behind 9.
        assert_eq!(got[6], 64 % 10);
        assert_eq!(got[7], 10 - 64 % 10);
        assert!((1..=64).contains(&got[8]) && got[9] == 7);
        assert_eq!(f32::from_bits(got[10]), 2080.0);
        assert_eq!((got[12], got[14]), (2080, 64));
        assert_eq!(got[16], 0x5400_5400);
        assert_eq!(got[17], 0x4280_4280);
        assert_eq!(got[20..24].iter().map(|&x| f32::from_bits(x)).sum::<f32>(), 256.0);
        let cells = bench.read::<u32>(out, 4);
        assert_eq!([cells[0], cells[3]], [64, 5]);
        assert!((1..=64).contains(&cells[1]) && f32::from_bits(cells[2]) == 64.0);
    }
}

#[test]
fn barriers_reduce_and_hand_over() {
    let module = module("exchange.ptx");
    for schedule in SCHEDULES {
        let mut bench = Bench::new(schedule);
        let out = bench.empty(1024);
        bench.launch(&module, "barriers", (1, 128, 0), &[out]).unwrap();
        let got = bench.read::<u32>(out, 256);
        assert!(got[..128].iter().all(|&x| x == 2100), "{:?}", &got[..4]);
        assert!(got[128..192].iter().all(|&x| x == 1));
        assert!(got[192..].iter().all(|&x| x == 77));
    }
}
