//! Broken text is refused and wild kernels are faults; neither brings the emulator down.

#![allow(clippy::cast_possible_truncation, reason = "random numbers are cut to what is asked for")]

mod harness;

use harness::{Bench, words};
use tessera_emulator::{Config, Launch, Machine, Module, Schedule};

const TEXTS: [&str; 10] = [
    include_str!("ptx/basics.ptx"),
    include_str!("ptx/compiled.ptx"),
    include_str!("ptx/copies.ptx"),
    include_str!("ptx/exchange.ptx"),
    include_str!("ptx/faults.ptx"),
    include_str!("ptx/half.ptx"),
    include_str!("ptx/mma.ptx"),
    include_str!("ptx/pipelined.ptx"),
    include_str!("ptx/tensor.ptx"),
    include_str!("ptx/wgmma.ptx"),
];

/// Changes a few digits: other registers, other numbers.
fn tweak(text: &str, random: &mut impl FnMut() -> u64) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..1 + random() % 3 {
        let from = random() as usize % bytes.len();
        let digit = bytes[from..].iter().position(u8::is_ascii_digit);
        if let Some(at) = digit.filter(|at| !text[..from + at].ends_with('.')) {
            bytes[from + at] = b'0' + (random() % 10) as u8;
        }
    }
    String::from_utf8(bytes).expect("digits in place of digits")
}

/// Changes, drops or repeats a few characters or words.
fn damage(text: &str, random: &mut impl FnMut() -> u64) -> String {
    if !random().is_multiple_of(4) {
        return tweak(text, random);
    }
    let mut text = text.to_owned();
    for _ in 0..1 + random() % 3 {
        let mut at = random() as usize % text.len();
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let end = (at + 1 + random() as usize % 8).min(text.len());
        if !text.is_char_boundary(end) {
            continue;
        }
        match random() % 4 {
            0 => text.replace_range(at..end, ""),
            1 => {
                let piece = text[at..end].to_owned();
                text.insert_str(at, &piece);
            }
            2 => text.replace_range(at..end, ["4294967295", "{", "-", ".b64", "\u{e9}"][at % 5]),
            _ => text.replace_range(at..end, &(random() % 10_000).to_string()),
        }
    }
    text
}

#[test]
fn damaged_text_is_refused_or_run_to_an_end() {
    let mut random = words(77);
    let (mut refused, mut faults, mut clean) = (0, 0, 0);
    for text in TEXTS {
        for _ in 0..200 {
            // Sound text is run with wild parameters, too.
            let sound = random().is_multiple_of(4);
            let text = if sound { text.to_owned() } else { damage(text, &mut random) };
            let Ok(module) = Module::parse(&text) else {
                refused += 1;
                continue;
            };
            let entries = module.entries();
            let Some(entry) = entries.get(random() as usize % entries.len().max(1)) else {
                continue;
            };
            let config = Config {
                memory_bytes: 1 << 24,
                schedule: Schedule::Random(random()),
                max_instructions: 20_000,
                ..Config::default()
            };
            let mut machine = Machine::new(config);
            let memory = machine.alloc(1 << 16, 256).unwrap();
            machine.fill(memory, 1, 1 << 15).unwrap();
            let mut params = vec![0; entry.param_bytes() as usize];
            for chunk in params.chunks_mut(8) {
                let value = match random() % 8 {
                    0 => random(),
                    1 => random() % 64,
                    2 => u64::MAX - random() % 64,
                    _ => memory + random() % 16 * 128,
                };
                chunk.copy_from_slice(&value.to_le_bytes()[..chunk.len()]);
            }
            let block = entry.reqntid().unwrap_or([64, 1, 1]);
            let launch = Launch { grid: [2, 1, 1], block, shared_bytes: 16 << 10, params: &params };
            match machine.launch(&module, entry.name(), &launch) {
                Ok(_) => clean += 1,
                Err(fault) => {
                    faults += 1;
                    assert!(!fault.to_string().is_empty());
                }
            }
        }
    }
    // All three happen, or the damage is of no use.
    assert!(refused > 300 && faults > 300 && clean > 10, "{refused} {faults} {clean}");
}

#[test]
fn hosts_that_ask_for_too_much_are_refused() {
    let mut bench = Bench::new(Schedule::Earliest);
    let memory = bench.buffer(&[0u8; 64]);
    let machine = &mut bench.machine;
    assert!(machine.alloc(u64::MAX, 256).is_err() && machine.alloc(8, 1 << 63).is_err());
    assert!(machine.alloc(8, 3).is_err());
    assert!(machine.copy(memory, memory, u64::MAX).is_err());
    assert!(machine.copy(memory + 32, memory, 64).is_err());
    assert!(machine.fill(memory, 0, 65).is_err() && machine.write(0, &[0]).is_err());
    assert!(machine.free(memory + 1).is_err());
    machine.copy(memory + 16, memory, 32).unwrap();
}
