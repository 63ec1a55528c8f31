//! A stand-in CUDA driver.
//!
//! The library exports the functions of `libcuda.so.1` that `cudarc` and Tessera's runtime call,
//! with CUDA's signatures and codes, and runs kernels on the emulator. A program meets it by
//! `LD_LIBRARY_PATH` alone: a folder that holds this library under the names `libcuda.so` and
//! `libcuda.so.1`, which [`install()`] makes for a test that has this crate as a dev-dependency. No
//! release holds it.
//!
//! What it does that a quick imitation would not, as real code goes wrong there:
//!
//! - Streams are asynchronous. Each has a thread that does its work in order; results are there when
//!   the stream has got to them, not before. The default stream, blocking and non-blocking streams
//!   are ordered as CUDA has it. Pageable host memory is staged or waited for.
//! - A failure that a kernel causes shows at a later call, stays, and is what every further call of
//!   its context returns. The emulator's report goes to the error output.
//! - Misuse gives CUDA's codes: stale handles, bad ranges, captures that are synchronized or joined
//!   wrongly, calls that a capture forbids.
//! - Freed memory is poisoned. Graphs run in any order that their edges allow, by the schedule.
//!
//! What it cannot do it refuses with `CUDA_ERROR_NOT_SUPPORTED` and a line on the error output:
//! machine code, managed and mapped memory, clusters, cooperative launches, textures, memory nodes
//! in graphs. CUDA's own runtime library cannot use it, as it asks the driver for private tables. Times between events are virtual: they grow with instructions and bytes, and compare
//! nothing with a device.
//!
//! # Settings
//!
//! Each is an environment variable; one that is not understood makes `cuInit` fail with
//! `CUDA_ERROR_INVALID_VALUE`.
//!
//! | variable | what | default |
//! |---|---|---|
//! | `TESSERA_EMULATOR_DEVICES` | number of devices, 0 to 16 | 1 |
//! | `TESSERA_EMULATOR_ARCH` | `sm_90` or `sm_100` | `sm_90` |
//! | `TESSERA_EMULATOR_MEMORY` | memory of each device: bytes, or with `KiB`, `MiB`, `GiB` | 1GiB |
//! | `TESSERA_EMULATOR_SCHEDULE` | `earliest`, `latest` or a seed: when asynchronous parts of kernels happen, and the order of graphs' nodes | `earliest` |
//! | `TESSERA_EMULATOR_LATENCY` | driver calls that queued work waits for, unless somebody waits for it | 0 |
//! | `TESSERA_EMULATOR_FAULTS` | failures, joined by commas: `alloc:N`, `launch:N:KIND`, `copy:N:KIND`; N counts from 1 in order of the calls, nodes of launched graphs included | none |
//! | `TESSERA_EMULATOR_PROFILE` | a file that gets a line of JSON for each launch | none |
//! | `TESSERA_EMULATOR_WAITS` | a file that gets a line of JSON for each call in which the program waits for queued work: for what, in which thread, and how much work was queued behind that | none |
//!
//! `KIND` is `illegal_address`, `misaligned`, `illegal_instruction`, `assert`, `failed`, `timeout`,
//! `ecc`, or `lost`: the device is gone, for all its contexts. With a latency, a program that waits
//! for memory to change without calling the driver waits for ever.
//!
//! # Map
//!
//! `ffi` exports and translates; `driver` holds everything; `lane` makes queues and their threads,
//! `work` does what is in them; `stream`, `event`, `capture`, `graph` and `plan` decide what is
//! queued after what; `memory` and `pinned` keep accounts; `gpu` alone knows the emulator.

mod capture;
mod code;
mod context;
mod device;
mod driver;
mod event;
mod ffi;
mod gpu;
mod graph;
mod handles;
mod install;
mod lane;
mod memory;
mod module;
mod pinned;
mod plan;
mod pool;
mod settings;
mod stream;
mod tensor_map;
mod work;

pub use install::install;
