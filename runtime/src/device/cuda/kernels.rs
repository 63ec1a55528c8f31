//! Kernels by name: loaded when first wanted, picked by format and extents, launched; and what came
//! of their asserts.

use super::bundle::KernelBundle;
use super::error::CudaError;
use super::ffi::{Function, Gpu, Memory, Module};
use std::collections::HashMap;
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;
use tessera_ptx::KernelEntry;
use tessera_ptx::launch::{Arg, Plan};

/// Variants that can be in use: each has a word for its failed asserts.
const MAX_VARIANTS: usize = 1024;

/// What the driver says of machine code for another architecture.
const NO_BINARY_FOR_GPU: u32 = 209;

/// The kernels of one device.
#[derive(Debug)]
pub(super) struct Kernels {
    gpu: Arc<Gpu>,
    bundle: Arc<KernelBundle>,
    /// By kernel and index of its variant.
    loaded: HashMap<(&'static str, usize), Loaded>,
    modules: HashMap<String, Arc<Module>>,
    /// One word a loaded variant, in the order of `words`.
    faults: Memory,
    words: Vec<(&'static str, usize)>,
    plan: Plan,
}

#[derive(Debug)]
struct Loaded {
    function: Function,
    /// Address of its word.
    fault: u64,
}

impl Kernels {
    pub(super) fn new(gpu: &Arc<Gpu>, bundle: &Arc<KernelBundle>) -> Result<Self, CudaError> {
        Ok(Self {
            gpu: gpu.clone(),
            bundle: bundle.clone(),
            loaded: HashMap::new(),
            modules: HashMap::new(),
            faults: Memory::zeroed(gpu, MAX_VARIANTS * size_of::<u32>(), "failed asserts")?,
            words: Vec::new(),
            plan: Plan::default(),
        })
    }

    /// Launches the kernel of that name. A grid without programs launches nothing.
    pub(super) fn launch(
        &mut self,
        kernel: &'static str,
        args: &[Arg<'_>],
    ) -> Result<(), CudaError> {
        let variant = self.plan.make(self.bundle.variants(kernel)?, args)?;
        if self.plan.is_empty() {
            return Ok(());
        }
        if !self.loaded.contains_key(&(kernel, variant)) {
            self.load(kernel, variant)?;
        }
        let Loaded { function, fault } = &self.loaded[&(kernel, variant)];
        function.launch(self.plan.grid(), self.plan.words(*fault))
    }

    /// Where failed asserts are told, as far as words are in use.
    pub(super) fn faults(&self) -> (&Memory, usize) {
        (&self.faults, self.words.len())
    }

    /// What the words say: the first kernel whose assert failed. They begin anew then.
    pub(super) fn check(&self, words: &[u32]) -> Result<(), CudaError> {
        let Some(index) = words.iter().position(|&word| word != 0) else { return Ok(()) };
        self.faults.zero(0..self.faults.bytes())?;
        let (kernel, variant) = self.words[index];
        let entry = &self.bundle.variants(kernel)?[variant];
        let assert = entry.asserts.get(words[index] as usize - 1);
        let (message, place) = assert.map_or_else(
            || (format!("assert {} failed", words[index]), entry.file.clone()),
            |assert| (assert.message.clone(), assert.place.clone()),
        );
        Err(CudaError::Assert { kernel: entry.label.clone(), message, place })
    }

    /// The kernels that there are.
    pub(super) fn bundle(&self) -> &KernelBundle {
        &self.bundle
    }

    fn load(&mut self, kernel: &'static str, variant: usize) -> Result<(), CudaError> {
        let bundle = self.bundle.clone();
        let entry = &bundle.variants(kernel)?[variant];
        let refused =
            |reason: String| CudaError::Bundle { path: PathBuf::from(&entry.file), reason };
        let module = match self.modules.get(&entry.file) {
            Some(module) => module.clone(),
            None => {
                let module = load_module(&self.gpu, &bundle, entry)?;
                self.modules.insert(entry.file.clone(), module.clone());
                module
            }
        };
        let name =
            CString::new(entry.entry.as_str()).map_err(|error| refused(error.to_string()))?;
        let function = Function::new(&module, name, (entry.threads, entry.shared_bytes))?;
        let word = self.words.len();
        assert!(word < MAX_VARIANTS, "more than {MAX_VARIANTS} variants in use");
        self.words.push((kernel, variant));
        let fault = self.faults.address() + (word * size_of::<u32>()) as u64;
        self.loaded.insert((kernel, variant), Loaded { function, fault });
        Ok(())
    }
}

/// Machine code if the driver takes it, text if that is for another architecture of the family.
pub(super) fn load_module(
    gpu: &Arc<Gpu>,
    bundle: &KernelBundle,
    entry: &KernelEntry,
) -> Result<Arc<Module>, CudaError> {
    let images = bundle.images(entry)?;
    let mut images = images.iter().peekable();
    loop {
        let (file, image) = images.next().expect("the text is always there");
        match Module::load(gpu, image, file) {
            Err(CudaError::Module { code: NO_BINARY_FOR_GPU, .. }) if images.peek().is_some() => {}
            result => return result,
        }
    }
}
