//! Every operation of every instruction set against [`Scalar`], bit for bit.

use super::*;

const AWKWARD: [f32; 24] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    f32::MIN_POSITIVE,
    f32::from_bits(1),
    f32::from_bits(0x8000_0001),
    f32::from_bits(0x007f_ffff),
    f32::MAX,
    f32::MIN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    8_388_609.0,
    2_147_483_648.0,
    -2_147_483_648.0,
    2_147_483_520.0,
    16_777_217.0,
    0.1,
    -3.7,
];

const INTS: [i32; 11] =
    [0, 1, -1, 7, i32::MIN, i32::MAX, 0x0102_0304, -0x7f7f_7f7f, 16_777_217, 255, 65_536];

/// Bits, with every NaN the same: which NaN comes out is not part of the contract.
fn canonical(values: [f32; LANES]) -> [u32; LANES] {
    values.map(|v| if v.is_nan() { 0x7fc0_0000 } else { v.to_bits() })
}

/// Results of all operations on one set of lanes.
struct Results {
    floats: Vec<(&'static str, [u32; LANES])>,
    ints: Vec<(&'static str, [i32; LANES])>,
    masks: Vec<(&'static str, u16)>,
    bytes: Vec<u8>,
}

struct Ops {
    a: [f32; LANES],
    b: [f32; LANES],
    c: [f32; LANES],
    x: [i32; LANES],
    y: [i32; LANES],
    bits: u16,
}

macro_rules! results {
    ($store:ident, $zero:expr; $($name:literal: $value:expr),* $(,)?) => {
        vec![$(($name, { let mut out = [$zero; LANES]; $store($value, &mut out); out })),*]
    };
}

impl WithIsa for &Ops {
    type Output = Results;

    #[inline(always)]
    fn call<I: Isa>(self, isa: I) -> Results {
        let (a, b, c) = (isa.load(&self.a), isa.load(&self.b), isa.load(&self.c));
        let (x, y) = (isa.load_i32(&self.x), isa.load_i32(&self.y));
        let mask = isa.mask_from_bits(self.bits);
        let store = |value, out: &mut [f32; LANES]| isa.store(value, out);
        let floats: Vec<(&'static str, [f32; LANES])> = results![store, 0.0;
            "splat": isa.splat(self.a[3]), "add": isa.add(a, b), "sub": isa.sub(a, b),
            "mul": isa.mul(a, b), "div": isa.div(a, b), "min": isa.min(a, b),
            "max": isa.max(a, b), "fma": isa.fma(a, b, c), "sqrt": isa.sqrt(a),
            "floor": isa.floor(a), "round": isa.round(a), "select": isa.select(mask, a, b),
            "neg": isa.neg(a), "abs": isa.abs(a), "to_f32": isa.to_f32(x),
            "lookup_f32": isa.lookup_f32(b, isa.and(x, isa.splat_i32(15))),
            "from_bits": isa.from_bits(x), "load_first": isa.load_first(&self.a[..5]),
        ];
        let mut floats: Vec<_> =
            floats.into_iter().map(|(name, values)| (name, canonical(values))).collect();
        floats.push(("sum", canonical([isa.sum(a); LANES])));
        (Results { floats, ints: self.ints(isa, a, x, y), masks: vec![], bytes: vec![] })
            .with_masks(isa, (a, b), (x, y), mask)
    }
}

impl Ops {
    #[inline(always)]
    fn ints<I: Isa>(
        &self,
        isa: I,
        a: I::F32,
        x: I::I32,
        y: I::I32,
    ) -> Vec<(&'static str, [i32; LANES])> {
        let mask = isa.mask_from_bits(self.bits);
        let bytes = std::array::from_fn(|i| self.x[i / 4].to_le_bytes()[i % 4]);
        let few = isa.and(x, isa.splat_i32(0x0f0f_0f0f));
        let table =
            isa.load_bytes(&splat_table(std::array::from_fn(|i| self.y[i].to_le_bytes()[0])));
        let first = |n: usize| -> Vec<u8> { bytes.iter().copied().take(n).collect() };
        let store = |value, out: &mut [i32; LANES]| isa.store_i32(value, out);
        results![store, 0;
            "bits": isa.bits(a), "splat_i32": isa.splat_i32(self.x[2]),
            "most_i32": isa.splat_i32(isa.most_i32(x)),
            "total_i32": isa.splat_i32(isa.total_i32(x)),
            "load_u8": isa.load_u8(first(16).as_slice().try_into().unwrap()),
            "load_u16": isa.load_u16(first(32).as_slice().try_into().unwrap()),
            "add_i32": isa.add_i32(x, y), "sub_i32": isa.sub_i32(x, y),
            "mul_i32": isa.mul_i32(x, y), "min_i32": isa.min_i32(x, y),
            "max_i32": isa.max_i32(x, y), "and": isa.and(x, y), "or": isa.or(x, y),
            "xor": isa.xor(x, y), "shl": isa.shl::<5>(x), "shr": isa.shr::<5>(x),
            "sra": isa.sra::<5>(x), "load_bytes": isa.load_bytes(&bytes),
            "lookup": isa.lookup(table, few),
            "dot4": isa.dot4(x, isa.and(y, isa.splat_i32(0x7f7f_7f7f)), x),
            "nibbles": isa.nibbles([self.x[0], self.y[1]].map(i32::cast_unsigned)),
            "select_i32": isa.select_i32(mask, x, y), "to_i32": isa.to_i32(a),
        ]
    }
}

impl Results {
    #[inline(always)]
    fn with_masks<I: Isa>(
        mut self,
        isa: I,
        (a, b): (I::F32, I::F32),
        (x, y): (I::I32, I::I32),
        mask: I::Mask,
    ) -> Self {
        let lt = isa.lt(a, b);
        self.masks = vec![
            ("eq", isa.mask_bits(isa.eq(a, b))),
            ("eq self", isa.mask_bits(isa.eq(a, a))),
            ("lt", isa.mask_bits(lt)),
            ("le", isa.mask_bits(isa.le(a, b))),
            ("eq_i32", isa.mask_bits(isa.eq_i32(x, y))),
            ("lt_i32", isa.mask_bits(isa.lt_i32(x, y))),
            ("and_mask", isa.mask_bits(isa.and_mask(mask, lt))),
            ("or_mask", isa.mask_bits(isa.or_mask(mask, lt))),
            ("not_mask", isa.mask_bits(isa.not_mask(mask))),
        ];
        let (mut one, mut two, mut four) = ([0; LANES], [0; 2 * LANES], [0; 4 * LANES]);
        isa.store_u8(x, &mut one);
        isa.store_u16(x, &mut two);
        isa.store_bytes(x, &mut four);
        let mut few = [0.0; 3];
        isa.store_first(isa.splat(2.0), &mut few);
        self.bytes = one.into_iter().chain(two).chain(four).collect();
        self.bytes.extend(few.iter().flat_map(|v| v.to_le_bytes()));
        self
    }
}

#[test]
fn every_instruction_set_agrees_with_scalar() {
    let scalar = AnyIsa::Scalar(Scalar::detect().unwrap());
    for step in 0..AWKWARD.len() * INTS.len() {
        let float = |stride: usize, i: usize| AWKWARD[(step * stride + i * 5) % AWKWARD.len()];
        let int = |stride: usize, i: usize| INTS[(step * stride + i * 3) % INTS.len()];
        let ops = Ops {
            a: std::array::from_fn(|i| float(1, i)),
            b: std::array::from_fn(|i| float(7, i + 1)),
            c: std::array::from_fn(|i| float(11, i + 2)),
            x: std::array::from_fn(|i| int(1, i)),
            y: std::array::from_fn(|i| int(4, i + 1)),
            bits: u16::try_from(step * 9973 % 65536).unwrap(),
        };
        let want = scalar.run(&ops);
        for isa in AnyIsa::available() {
            let got = isa.run(&ops);
            for (got, want) in got.floats.iter().zip(&want.floats) {
                assert_eq!(got, want, "{isa:?}, step {step}");
            }
            for (got, want) in got.ints.iter().zip(&want.ints) {
                assert_eq!(got, want, "{isa:?}, step {step}");
            }
            assert_eq!(got.masks, want.masks, "{isa:?}, step {step}");
            assert_eq!(got.bytes, want.bytes, "{isa:?}, step {step}");
        }
    }
}

#[test]
fn min_and_max_keep_nan() {
    let isa = Scalar::detect().unwrap();
    let (nan, one) = (isa.splat(f32::NAN), isa.splat(1.0));
    for value in [isa.min(nan, one), isa.min(one, nan), isa.max(nan, one), isa.max(one, nan)] {
        assert!(value[0].is_nan());
    }
}
