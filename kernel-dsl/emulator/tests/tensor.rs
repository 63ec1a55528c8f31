//! Copies of boxes of tensors, with every swizzle, inside a tensor and over its edges.

mod harness;

use harness::{Bench, SCHEDULES, module};
use tessera_emulator::{Fault, FaultKind, Launch, Schedule};

/// Elements of a row of the tensor, and rows.
const WIDTH: usize = 96;
const HEIGHT: usize = 20;
/// Rows of a box.
const ROWS: usize = 16;

/// A map of 16-bit elements, as the stand-in driver writes it.
fn map(address: u64, box_width: usize, swizzle: u8) -> Vec<u8> {
    let mut bytes = b"TESSTMAP".to_vec();
    bytes.extend(address.to_le_bytes());
    let sizes = [WIDTH as u64, HEIGHT as u64, 1, 1, 1, 2 * WIDTH as u64, 0, 0, 0];
    sizes.iter().for_each(|size| bytes.extend(size.to_le_bytes()));
    let box_sizes = [box_width, ROWS, 1, 1, 1].map(|size| u32::try_from(size).expect("small"));
    box_sizes.iter().for_each(|size| bytes.extend(size.to_le_bytes()));
    [1u16; 5].iter().for_each(|step| bytes.extend(step.to_le_bytes()));
    bytes.extend([1, 2, 0, swizzle, 0, 0]);
    bytes.resize(128, 0);
    bytes
}

struct Outcome {
    raw: Vec<u16>,
    stored: Vec<u16>,
}

fn value(x: usize, y: usize) -> u16 {
    u16::try_from(1 + x + WIDTH * y).expect("a small number")
}

fn run(
    schedule: Schedule,
    (box_width, swizzle): (usize, u8),
    (x, y): (i32, i32),
    change: impl Fn(&mut Vec<u8>),
) -> Result<Outcome, Fault> {
    let module = module("tensor.ptx");
    let mut bench = Bench::new(schedule);
    let tensor: Vec<u16> = (0..WIDTH * HEIGHT).map(|i| value(i % WIDTH, i / WIDTH)).collect();
    let (from, to) = (bench.buffer(&tensor), bench.buffer(&vec![0u16; WIDTH * HEIGHT]));
    let bytes = box_width * ROWS * 2;
    let raw = bench.empty(bytes as u64);
    let mut params = map(from, box_width, swizzle);
    params.extend(map(to, box_width, swizzle));
    params.extend(raw.to_le_bytes());
    params.extend(x.to_le_bytes());
    params.extend(y.to_le_bytes());
    params.extend(u32::try_from(bytes).expect("a small number").to_le_bytes());
    change(&mut params);
    let launch = Launch { grid: [1; 3], block: [32, 1, 1], shared_bytes: 4096, params: &params };
    bench.machine.launch(&module, "box", &launch)?;
    let raw = bench.read::<u16>(raw, box_width * ROWS);
    Ok(Outcome { raw, stored: bench.read::<u16>(to, WIDTH * HEIGHT) })
}

#[test]
fn boxes_come_and_go() {
    let shapes = [(24, 0), (16, 1), (32, 2), (64, 3)];
    let places = [(0, 0), (8, 3), (-3, -2), (90, 15), (40, 19)];
    for schedule in SCHEDULES {
        for (width, swizzle) in shapes {
            for (x, y) in places {
                let got = run(schedule, (width, swizzle), (x, y), |_| ());
                let got = got.unwrap_or_else(|fault| panic!("{fault}"));
                let inside = |column: usize, row: usize| {
                    let at = (x + i32::try_from(column).ok()?, y + i32::try_from(row).ok()?);
                    let at = (usize::try_from(at.0).ok()?, usize::try_from(at.1).ok()?);
                    (at.0 < WIDTH && at.1 < HEIGHT).then_some(at)
                };
                let mut stored = vec![0; WIDTH * HEIGHT];
                for row in 0..ROWS {
                    for column in 0..width {
                        // Chunks of eight elements are exchanged by their line of 128 bytes.
                        let line = row * width / 64;
                        let (chunk, element) = (column / 8, column % 8);
                        let turned = chunk ^ (line % (1 << swizzle));
                        let want = inside(column, row);
                        let got = got.raw[row * width + turned * 8 + element];
                        assert_eq!(got, want.map_or(0, |(x, y)| value(x, y)), "{width} {x} {y}");
                        if let Some((x, y)) = want {
                            stored[x + WIDTH * y] = value(x, y);
                        }
                    }
                }
                assert_eq!(got.stored, stored, "{width} {x} {y}");
            }
        }
    }
}

#[test]
fn wrong_maps_are_refused() {
    let kind = |change: fn(&mut Vec<u8>)| {
        run(Schedule::Earliest, (64, 3), (0, 0), change).err().map(|fault| fault.kind)
    };
    assert_eq!(kind(|_| ()), None);
    assert_eq!(kind(|params| params[0] = 0), Some(FaultKind::Operand));
    assert_eq!(kind(|params| params[119] = 3), Some(FaultKind::Operand));
    assert_eq!(kind(|params| params[118] = 15), Some(FaultKind::Operand));
    // A tensor that says that it has more rows than the allocation holds.
    assert_eq!(kind(|params| params[56] = 0xff), Some(FaultKind::OutOfBounds));
}

#[test]
fn a_barrier_for_other_bytes_is_never_complete() {
    let more = |params: &mut Vec<u8>| {
        let at = params.len() - 4;
        params[at] += 16;
    };
    for schedule in [Schedule::Earliest, Schedule::Latest] {
        let outcome = run(schedule, (64, 3), (0, 0), more);
        assert_eq!(outcome.err().map(|fault| fault.kind), Some(FaultKind::Deadlock));
    }
}
