//! Loading holds little more than what it loads: peak memory is measured in a process of its own.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use tessera_runtime::checkpoint::{WeightPolicy, load};
use tessera_tests::tiny::Tiny;

/// A figure of this process in bytes, such as `VmRSS`.
fn status(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn peak_memory_of_a_load_is_the_weights_and_a_tenth() {
    let dir = Tiny::large().write();
    let policy = WeightPolicy::preset("int4").unwrap();
    // 5 forgets the peak so far: the generator's.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS");
    let loaded = load(dir.path(), &policy, &mut |_| {}).unwrap();
    let peak = status("VmHWM") - before;
    let resident = loaded.report.converted_bytes + loaded.report.mapped_bytes;
    // 64 experts x 3 matrices x 512 x 1024: half a byte each, and two of scale for each 32.
    assert_eq!(loaded.report.converted_bytes, 64 * 3 * 512 * 1024 * 9 / 16);
    assert!(peak > resident / 2, "{peak} for {resident}: the measure itself is broken");
    assert!(peak < resident * 11 / 10, "{peak} bytes at the peak for {resident} of weights");
}
