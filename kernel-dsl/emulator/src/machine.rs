//! The machine as a host sees it: memory and launches.

use crate::exec;
use crate::fault::{Fault, FaultKind, MemoryError};
use crate::global::GlobalMemory;
use crate::profile::Profile;
use crate::program::{Lanes, Module};
use std::collections::HashMap;

/// When asynchronous work completes, and in which order warps and CTAs advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Schedule {
    /// Copies complete when they are issued; the first warp that can run, runs.
    #[default]
    Earliest,
    /// Copies complete when somebody cannot go on without them; the last warp that can run, runs.
    Latest,
    /// Both at random; the same seed gives the same run.
    Random(u64),
}

/// What a machine is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes of global memory.
    pub memory_bytes: u64,
    /// The order of what is not ordered.
    pub schedule: Schedule,
    /// The most shared memory that a CTA may have.
    pub shared_bytes: u32,
    /// Warp instructions after which a launch is taken to be endless.
    pub max_instructions: u64,
    /// CTAs that run side by side; more lets CTAs wait for each other.
    pub resident_ctas: u32,
    /// Whether reading memory, or a register, that was never written is a fault.
    pub check_uninitialised: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            memory_bytes: 1 << 32,
            schedule: Schedule::default(),
            shared_bytes: 227 * 1024,
            max_instructions: 20_000_000_000,
            resident_ctas: 2,
            check_uninitialised: true,
        }
    }
}

/// How an entry is launched.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// CTAs along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a CTA along x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// The parameter block, laid out as the entry declares it.
    pub params: &'a [u8],
}

/// A GPU's memory and processors.
pub struct Machine {
    config: Config,
    memory: GlobalMemory,
    /// Where the variables of a module are.
    variables: HashMap<(u64, u32), u64>,
    /// The clock that the next launch starts at, so that it is behind everything before it.
    clock: u32,
    launches: u64,
}

impl Machine {
    /// A machine with empty memory.
    #[must_use]
    pub fn new(config: Config) -> Machine {
        let memory = GlobalMemory::new(config.memory_bytes);
        Machine { config, memory, variables: HashMap::new(), clock: 1, launches: 0 }
    }

    /// What it is made of.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes that can still be allocated.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.memory.free_bytes()
    }

    /// Allocates memory; nothing is written to it.
    ///
    /// # Errors
    /// [`MemoryError`] if there is not as much, or the alignment is no power of two.
    pub fn alloc(&mut self, bytes: u64, align: u64) -> Result<u64, MemoryError> {
        self.memory.alloc(bytes, align)
    }

    /// Frees an allocation; what still uses it is found out.
    ///
    /// # Errors
    /// [`MemoryError::NotAllocated`] unless `ptr` is what `alloc` returned.
    pub fn free(&mut self, ptr: u64) -> Result<(), MemoryError> {
        self.memory.free(ptr)
    }

    /// Start and length of the allocation that holds an address.
    pub fn allocation(&mut self, ptr: u64) -> Option<(u64, u64)> {
        self.memory.range(ptr)
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// [`MemoryError`] if the range is not inside one allocation.
    pub fn write(&mut self, ptr: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let (block, offset) = self.memory.host(ptr, bytes.len() as u64)?;
        block.bytes_mut(offset, bytes.len()).copy_from_slice(bytes);
        block.mark_written(offset, bytes.len());
        Ok(())
    }

    /// Reads bytes; those that nobody wrote are zero.
    ///
    /// # Errors
    /// [`MemoryError`] if the range is not inside one allocation.
    pub fn read(&mut self, ptr: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        let (block, offset) = self.memory.host(ptr, out.len() as u64)?;
        out.copy_from_slice(block.bytes(offset, out.len()));
        Ok(())
    }

    /// Sets every byte of a range.
    ///
    /// # Errors
    /// [`MemoryError`] if the range is not inside one allocation.
    pub fn fill(&mut self, ptr: u64, byte: u8, len: u64) -> Result<(), MemoryError> {
        let (block, offset) = self.memory.host(ptr, len)?;
        let len = len as usize;
        block.bytes_mut(offset, len).fill(byte);
        block.mark_written(offset, len);
        Ok(())
    }

    /// Copies bytes between two ranges, which may overlap.
    ///
    /// # Errors
    /// [`MemoryError`] if one of them is not inside one allocation.
    pub fn copy(&mut self, dst: u64, src: u64, len: u64) -> Result<(), MemoryError> {
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        self.read(src, &mut bytes)?;
        self.write(dst, &bytes)
    }

    /// Where a module's variables are; they are placed when the module is first used.
    fn place(&mut self, module: &Module) -> Result<(), MemoryError> {
        for (variable, index) in module.variables.iter().zip(0..) {
            if self.variables.contains_key(&(module.id, index)) {
                continue;
            }
            let ptr = self.alloc(variable.bytes.len() as u64, variable.align)?;
            self.write(ptr, &variable.bytes)?;
            if variable.read_only {
                self.memory.protect(ptr);
            }
            self.variables.insert((module.id, index), ptr);
        }
        Ok(())
    }

    /// Runs an entry to its end.
    ///
    /// # Errors
    /// [`Fault`] for what the kernel, or the launch, does wrong.
    pub fn launch(
        &mut self,
        module: &Module,
        entry: &str,
        launch: &Launch<'_>,
    ) -> Result<Profile, Fault> {
        let refuse = |message: String| Fault {
            kind: FaultKind::Launch,
            entry: entry.to_owned(),
            place: None,
            others: Vec::new(),
            message,
        };
        let Some(program) = module.entry(entry) else {
            return Err(refuse("the module has no such entry".to_owned()));
        };
        exec::check_launch(program, launch, &self.config).map_err(refuse)?;
        self.place(module).map_err(|error| refuse(error.to_string()))?;
        let mut consts: Vec<Lanes> = program.consts.clone();
        for &(index, variable) in &program.relocations {
            consts[index as usize] = [self.variables[&(module.id, variable)]; 32];
        }
        self.launches += 1;
        // Stamps have 32 bits; a launch that alone needs half of them would take days.
        let full = self.clock > u32::MAX / 2;
        self.memory.forget(full);
        if full {
            self.clock = 1;
        }
        let setup = exec::Setup {
            module,
            entry: program,
            consts: &consts,
            launch,
            config: &self.config,
            start: self.clock,
            number: self.launches,
        };
        let outcome = exec::run(&setup, &mut self.memory);
        self.clock = outcome.clock;
        outcome.result
    }
}
