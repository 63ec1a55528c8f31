//! Every integer form of `integer.ptx` against the manual's definition of it, written once more.

#![allow(
    clippy::cast_possible_truncation,
    reason = "slots hold 64 bits of which a form's width is meant"
)]

mod harness;

use harness::{Bench, module, words};
use tessera_emulator::Schedule;

/// What a form gives for three operands.
type Form = fn(u64, u64, u64) -> u64;

fn s(x: u64) -> i32 {
    x as i32
}

fn u(x: u64) -> u32 {
    x as u32
}

fn product(a: u64, b: u64) -> i64 {
    i64::from(s(a)) * i64::from(s(b))
}

fn w(x: i32) -> u64 {
    u64::from(x as u32)
}

fn h(x: i16) -> u64 {
    u64::from(x as u16)
}

/// The bit at a position, as the manual's loops read it.
fn bit(x: u64, position: u32) -> u64 {
    x >> position & 1
}

fn bfe(bits: u32, signed: bool, a: u64, b: u64, c: u64) -> u64 {
    let (pos, len, msb) = ((b & 0xff) as u32, (c & 0xff) as u32, bits - 1);
    let sbit = match (signed, len) {
        (false, _) | (_, 0) => 0,
        _ => bit(a, (pos + len - 1).min(msb)),
    };
    (0..bits).fold(0, |d, i| {
        let value = if i < len && pos + i <= msb { bit(a, pos + i) } else { sbit };
        d | value << i
    })
}

fn bfi(bits: u32, a: u64, b: u64, c: u64, d: u64) -> u64 {
    let (pos, len) = ((c & 0xff) as u32, (d & 0xff) as u32);
    let inside = |i: u32| i < bits && i >= pos && i - pos < len;
    (0..bits).fold(0, |f, i| f | (if inside(i) { bit(a, i - pos) } else { bit(b, i) }) << i)
}

fn bytes(a: u64, b: u64) -> [u8; 8] {
    (b << 32 | a & 0xffff_ffff).to_le_bytes()
}

fn pick(a: u64, b: u64, picked: [usize; 4]) -> u64 {
    let bytes = bytes(a, b);
    u64::from(u32::from_le_bytes(picked.map(|index| bytes[index])))
}

fn prmt(a: u64, b: u64, c: u64) -> u64 {
    let all = bytes(a, b);
    let one = |index: u32| {
        let selector = (c >> (4 * index) & 0xf) as usize;
        let byte = all[selector & 7];
        if selector & 8 == 0 { byte } else { (byte as i8 >> 7) as u8 }
    };
    u64::from(u32::from_le_bytes([one(0), one(1), one(2), one(3)]))
}

fn halves(a: u64, b: u64, f: fn(u16, u16) -> u16) -> u64 {
    u64::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16 | u64::from(f(a as u16, b as u16))
}

fn pair(p: bool, q: bool) -> u64 {
    u64::from(p) | u64::from(q) << 1
}

fn s24(x: u64) -> i64 {
    i64::from((x as u32) << 8) << 32 >> 40
}

fn arithmetic() -> Vec<Form> {
    vec![
        |a, b, _| w(s(a).wrapping_add(s(b))),
        |a, b, _| w(s(a).saturating_add(s(b))),
        |a, b, _| w(s(a).wrapping_sub(s(b))),
        |a, b, _| w(s(a).saturating_sub(s(b))),
        |a, b, _| a.wrapping_add(b),
        |a, b, _| a.wrapping_sub(b),
        |a, b, _| h((a as i16).wrapping_add(b as i16)),
        |a, b, _| halves(a, b, u16::wrapping_add),
        |a, b, _| w(s(a).wrapping_mul(s(b))),
        |a, b, _| w((product(a, b) >> 32) as i32),
        |a, b, _| (u64::from(u(a)) * u64::from(u(b))) >> 32,
        |a, b, _| (i64::from(s(a)) * i64::from(s(b))) as u64,
        |a, b, _| u64::from(u(a)) * u64::from(u(b)),
        |a, b, _| a.wrapping_mul(b),
        |a, b, _| ((u128::from(a) * u128::from(b)) >> 64) as u64,
        |a, b, _| ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64,
        |a, b, _| w(i32::from(a as i16) * i32::from(b as i16)),
        |a, b, c| w(s(a).wrapping_mul(s(b)).wrapping_add(s(c))),
        |a, b, c| w(((product(a, b) >> 32) as i32).wrapping_add(s(c))),
        |a, b, c| w(((product(a, b) >> 32) as i32).saturating_add(s(c))),
        |a, b, c| (i64::from(s(a)) * i64::from(s(b))).wrapping_add(c as i64) as u64,
        |a, b, c| a.wrapping_mul(b).wrapping_add(c),
        |a, b, _| w((s24(a) * s24(b)) as i32),
        |a, b, _| u64::from((((a & 0xff_ffff) * (b & 0xff_ffff)) >> 16) as u32),
        |a, b, c| u64::from((((a & 0xff_ffff) * (b & 0xff_ffff)) as u32).wrapping_add(u(c))),
        |a, b, c| u64::from(s(a).abs_diff(s(b)).wrapping_add(u(c))),
        |a, b, c| u64::from(u(a).abs_diff(u(b)).wrapping_add(u(c))),
        |a, b, _| if s(b) == 0 { 0xffff_ffff } else { w(s(a).wrapping_div(s(b))) },
        |a, b, _| u64::from(u(a).checked_div(u(b)).unwrap_or(u32::MAX)),
        |a, b, _| if s(b) == 0 { 0xffff_ffff } else { w(s(a).wrapping_rem(s(b))) },
        |a, b, _| u64::from(u(a).checked_rem(u(b)).unwrap_or(u32::MAX)),
        |a, b, _| if b == 0 { u64::MAX } else { (a as i64).wrapping_div(b as i64) as u64 },
        |a, b, _| a.checked_rem(b).unwrap_or(u64::MAX),
        |a, b, _| w(s(a).min(s(b))),
        |a, b, _| u64::from(u(a).max(u(b))),
        |a, b, _| w(s(a).max(s(b)).max(0)),
        |a, b, _| (a as i64).min(b as i64) as u64,
        |a, b, _| h((a as i16).max(b as i16)),
        |a, b, _| halves(a, b, |x, y| (x as i16).min(y as i16) as u16),
        |a, b, _| halves(a, b, u16::max),
        |a, _, _| w(s(a).wrapping_neg()),
        |a, _, _| w(s(a).wrapping_abs()),
        |a, _, _| (a as i64).wrapping_abs() as u64,
        |a, _, _| h((a as i16).wrapping_neg()),
    ]
}

fn logic() -> Vec<Form> {
    vec![
        |a, b, _| u64::from(u(a) & u(b)),
        |a, b, _| a | b,
        |a, b, _| u64::from(a as u16 ^ b as u16),
        |a, _, _| !a,
        |a, _, _| u64::from(u(a) == 0),
        |a, b, _| u64::from(u(a).checked_shl(u(b)).unwrap_or(0)),
        |a, b, _| u64::from(u(a).checked_shr(u(b)).unwrap_or(0)),
        |a, b, _| w(s(a) >> u(b).min(31)),
        |a, b, _| a.checked_shl(u(b)).unwrap_or(0),
        |a, b, _| ((a as i64) >> u(b).min(63)) as u64,
        |a, b, _| a.checked_shr(u(b)).unwrap_or(0),
        |a, b, _| h(a as i16 >> u(b).min(15)),
        |a, b, c| {
            let n = u(c) & 31;
            u64::from(u(b) << n | u(a).checked_shr(32 - n).unwrap_or(0))
        },
        |a, b, c| {
            let n = u(c) & 31;
            u64::from(u(a) >> n | u(b).checked_shl(32 - n).unwrap_or(0))
        },
        |a, b, c| {
            let n = u(c).min(32);
            u64::from(u(b).checked_shl(n).unwrap_or(0) | u(a).checked_shr(32 - n).unwrap_or(0))
        },
        |a, b, c| {
            let n = u(c).min(32);
            u64::from(u(a).checked_shr(n).unwrap_or(0) | u(b).checked_shl(32 - n).unwrap_or(0))
        },
        |a, b, c| bfe(32, false, u64::from(u(a)), b, c),
        |a, b, c| bfe(32, true, u64::from(u(a)), b, c),
        |a, b, c| bfe(64, true, a, b, c),
        |a, b, c| bfi(32, u64::from(u(a)), u64::from(u(b)), b, c),
        |a, b, c| bfi(64, a, b, b, c),
        |a, _, _| u64::from(u(a).checked_ilog2().unwrap_or(u32::MAX)),
        |a, _, _| {
            let a = if s(a) < 0 { !u(a) } else { u(a) };
            u64::from(a.checked_ilog2().unwrap_or(u32::MAX))
        },
        |a, _, _| u64::from(u(a).checked_ilog2().map_or(u32::MAX, |top| 31 - top)),
        |a, _, _| u64::from(a.checked_ilog2().unwrap_or(u32::MAX)),
        |a, _, _| u64::from(u(a).count_ones()),
        |a, _, _| u64::from(a.count_ones()),
        |a, _, _| u64::from(u(a).leading_zeros()),
        |a, _, _| u64::from(a.leading_zeros()),
        |a, _, _| u64::from(u(a).reverse_bits()),
        |a, _, _| a.reverse_bits(),
        |a, b, _| {
            let ones = ((1u128 << u(b).min(32)) - 1) as u64;
            (u128::from(ones) << u(a).min(32)) as u64 & 0xffff_ffff
        },
        |a, b, _| ((1u64 << (b & 31)) - 1) << (a & 31) & 0xffff_ffff,
        |a, b, _| match b & 31 {
            0 => 0,
            n => w(s(a) << (32 - n) >> (32 - n)),
        },
        |a, b, _| u64::from(u(a)) & ((1u64 << u(b).min(32)) - 1),
        prmt,
        |a, b, c| pick(a, b, [0, 1, 2, 3].map(|i| (c & 3) as usize + i)),
        |a, b, c| pick(a, b, [0, 7, 6, 5].map(|i| ((c & 3) as usize + i) % 8)),
        |a, b, c| pick(a, b, [(c & 3) as usize; 4]),
        |a, b, c| pick(a, b, [0, 1, 2, 3].map(|i| i.max((c & 3) as usize))),
        |a, b, c| pick(a, b, [0, 1, 2, 3].map(|i| i.min((c & 3) as usize))),
        |a, b, c| pick(a, b, if c & 1 == 0 { [0, 1, 0, 1] } else { [2, 3, 2, 3] }),
        |a, b, c| u64::from(u(a) ^ u(b) ^ u(c)),
        |a, b, c| u64::from(u(a) & u(b) | u(b) & u(c) | u(a) & u(c)),
    ]
}

fn dot4(a: [i32; 4], b: [i32; 4], c: u64) -> u64 {
    let products = a.into_iter().zip(b).map(|(a, b)| a * b);
    w(s(c).wrapping_add(products.sum()))
}

fn signed(x: u64) -> [i32; 4] {
    u(x).to_le_bytes().map(|byte| i32::from(byte as i8))
}

fn unsigned(x: u64) -> [i32; 4] {
    u(x).to_le_bytes().map(i32::from)
}

fn moves_and_comparisons() -> Vec<Form> {
    vec![
        |a, b, c| dot4(signed(a), signed(b), c),
        |a, b, c| dot4(unsigned(a), signed(b), c),
        |a, _, _| u64::from(u(a).rotate_left(16)),
        |a, b, _| b << 32 | u64::from(u(a)),
        |a, _, _| w(i32::from(a as i8)),
        |a, _, _| w(s(a).clamp(-128, 127)),
        |a, _, _| w(s(a).clamp(0, 255)),
        |a, _, _| i64::from(s(a)) as u64,
        |a, _, _| u64::from(u(a)),
        |a, _, _| w((a as i64).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32),
        |a, _, _| (a as i64).clamp(0, i64::from(u32::MAX)) as u64,
        |a, _, _| u64::from(u(a).min(0xffff)),
        |a, _, _| w(i32::from(a as i16)),
        |a, b, _| if s(a) < s(b) { 0xffff_ffff } else { 0 },
        |a, b, c| u64::from(if s(c) >= 0 { u(a) } else { u(b) }),
        |a, b, _| pair(s(a) < s(b), s(a) >= s(b)),
        |a, b, _| pair(u(a) >= u(b), u(a) < u(b)),
        |a, b, _| pair(a > b, a <= b),
        |a, b, c| pair(s(a) < s(b) && s(c) != 0, s(a) >= s(b) && s(c) != 0),
        |a, b, c| pair(a as i16 == b as i16 || s(c) == 0, a as i16 != b as i16 || s(c) == 0),
        // p and not p is false; not that is true; false xor true is true.
        |_, _, _| pair(true, true),
        |a, b, _| u64::from(if s(a) < s(b) { u(a) } else { u(b) }),
    ]
}

#[test]
fn integer_forms_do_what_the_manual_says() {
    let forms = [arithmetic(), logic(), moves_and_comparisons()].concat();
    let module = module("integer.ptx");
    let corners =
        [0, 1, 2, 31, 32, 33, 63, 64, 0x7fff_ffff, 0x8000_0000, u64::MAX, 1 << 63, 0x8000];
    let mut random = words(11);
    for round in 0..40 {
        let mut operand = |which: usize| -> Vec<u64> {
            let value = |i: usize| match (i + round + which) % 4 {
                0 => corners[(i * 7 + round * 5 + which * 3) % corners.len()],
                1 => random() % 40,
                2 => random() & 0xffff_ffff,
                _ => random(),
            };
            (0..64).map(value).collect()
        };
        let [a, b, c] = [0, 1, 2].map(&mut operand);
        let mut bench = Bench::new(Schedule::Earliest);
        let out = bench.buffer(&vec![0u64; forms.len() * 64]);
        let params = [bench.buffer(&a), bench.buffer(&b), bench.buffer(&c), out];
        bench.launch(&module, "forms", (1, 64, 0), &params).unwrap();
        let got = bench.read::<u64>(out, forms.len() * 64);
        for (index, form) in forms.iter().enumerate() {
            for thread in 0..64 {
                let (a, b, c) = (a[thread], b[thread], c[thread]);
                let (got, want) = (got[index * 64 + thread], form(a, b, c));
                assert_eq!(got, want, "form {index} of {a:#x}, {b:#x}, {c:#x}: {got:#x} {want:#x}");
            }
        }
    }
}
