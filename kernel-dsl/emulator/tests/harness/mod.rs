//! What tests of the emulator share: a machine, typed buffers, parameters.

#![allow(dead_code, reason = "each test binary uses its part")]

use tessera_emulator::{Config, Fault, Launch, Machine, Module, Profile, Schedule};

/// Every schedule that tests run under.
pub(crate) const SCHEDULES: [Schedule; 5] = [
    Schedule::Earliest,
    Schedule::Latest,
    Schedule::Random(1),
    Schedule::Random(2),
    Schedule::Random(3),
];

/// A machine and what tests do with it.
pub(crate) struct Bench {
    pub(crate) machine: Machine,
}

impl Bench {
    pub(crate) fn new(schedule: Schedule) -> Bench {
        let config = Config {
            memory_bytes: 1 << 28,
            schedule,
            max_instructions: 4_000_000,
            ..Config::default()
        };
        Bench { machine: Machine::new(config) }
    }

    pub(crate) fn buffer<T: Word>(&mut self, values: &[T]) -> u64 {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.bytes()).collect();
        let ptr = self.machine.alloc(bytes.len() as u64, 256).expect("memory");
        self.machine.write(ptr, &bytes).expect("the buffer");
        ptr
    }

    /// Memory that is allocated and never written.
    pub(crate) fn empty(&mut self, bytes: u64) -> u64 {
        self.machine.alloc(bytes, 256).expect("memory")
    }

    pub(crate) fn read<T: Word>(&mut self, ptr: u64, count: usize) -> Vec<T> {
        let mut bytes = vec![0; count * T::SIZE];
        self.machine.read(ptr, &mut bytes).expect("the buffer");
        bytes.chunks_exact(T::SIZE).map(T::from_bytes).collect()
    }

    /// Launches with parameters of eight bytes each.
    pub(crate) fn launch(
        &mut self,
        module: &Module,
        entry: &str,
        (grid, block, shared): (u32, u32, u32),
        params: &[u64],
    ) -> Result<Profile, Fault> {
        let params: Vec<u8> = params.iter().flat_map(|p| p.to_le_bytes()).collect();
        let launch = Launch {
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            shared_bytes: shared,
            params: &params,
        };
        self.machine.launch(module, entry, &launch)
    }
}

/// A number that lies in memory.
pub(crate) trait Word: Copy {
    const SIZE: usize;
    fn bytes(self) -> Vec<u8>;
    fn from_bytes(bytes: &[u8]) -> Self;
}

macro_rules! words {
    ($($ty:ty),*) => {$(
        impl Word for $ty {
            const SIZE: usize = std::mem::size_of::<$ty>();
            fn bytes(self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }
            fn from_bytes(bytes: &[u8]) -> $ty {
                <$ty>::from_le_bytes(bytes.try_into().unwrap())
            }
        }
    )*};
}

words!(u8, u16, u32, u64, i32, f32, f64);

/// A module of the `ptx` folder.
pub(crate) fn module(name: &str) -> Module {
    let path = format!("{}/tests/ptx/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    Module::parse(&text).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Reproducible random numbers.
pub(crate) fn words(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
