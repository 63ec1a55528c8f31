//! Every case of a kernel's variants by the driver, judged by the f64 evaluator.

use crate::options::Options;
use crate::record::hashes;
use crate::worker::{CaseName, CaseResult, Message, say};
use anyhow::{Context, Result, anyhow, bail};
use std::collections::BTreeSet;
use tessera_kernel_dsl::Target;
use tessera_kernel_tool::cases::{Built, Case, judge, load};
use tessera_kernel_tool::choose::entry;
use tessera_kernel_tool::place::{Place, Room};
use tessera_ptx::KernelEntry;
use tessera_ptx::launch::Plan;
use tessera_runtime::device::{DeviceMemory, KernelBundle, Launcher, LoadedKernel};
use tessera_tile_ir::Kernel;

/// Names of the kernels that a bundle has.
pub(crate) fn kernels(bundle: &KernelBundle) -> Vec<String> {
    let names: BTreeSet<&str> = bundle.entries().iter().map(|e| e.kernel.as_str()).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// Runs the cases of one kernel but for the first `skip`, and says what came of each. After one that
/// breaks the device it ends with an error: no other can be run by this process.
pub(crate) fn run(options: &Options, kernel: &str, skip: usize) -> Result<()> {
    let bundle = KernelBundle::open(&options.kernels())?;
    let launcher = Launcher::open(0)?;
    let built = built(kernel, bundle.target())?;
    let all = load(&options.cases())?;
    let mut number = 0;
    for entry in bundle.entries().into_iter().filter(|entry| entry.kernel == kernel) {
        let ir = built.iter().find(|ir| ir.label() == entry.label);
        let ir = ir.ok_or_else(|| anyhow!("this program has no {}", entry.label))?;
        let mut loaded = None;
        for case in all.iter().filter(|case| is_for(case, ir)) {
            number += 1;
            if number <= skip {
                continue;
            }
            let name = CaseName { label: entry.label.clone(), case: case.name.clone() };
            say(&Message::Started(name.clone()))?;
            let mut device = OnDevice { launcher: &launcher, held: Vec::new() };
            let judged = judge(ir, case, |arguments| {
                let loaded = match &mut loaded {
                    Some(loaded) => loaded,
                    none => none.insert(launcher.load(&bundle, entry)?),
                };
                device.launch((ir, entry, loaded), arguments)
            });
            let (wrong, outputs) = match judged {
                Ok(written) => (None, written.map(|w| hashes(ir, &w)).unwrap_or_default()),
                Err(why) => (Some(why), Default::default()),
            };
            let class = entry.class.clone();
            say(&Message::Case(CaseResult { name, class, wrong, outputs }))?;
            launcher.failed_assert().context("the device is broken")?;
        }
    }
    Ok(())
}

/// The variants of a kernel as this program has them.
fn built(kernel: &str, target: &str) -> Result<Vec<Kernel>> {
    let target = match target {
        "sm_90a" => Target::Sm90a,
        "sm_100a" | "sm_100f" => Target::Sm100a,
        other => bail!("no kernels are written for {other}"),
    };
    // A mistake in one variant is `build-kernels`' to tell: it is in no bundle.
    Ok((entry(kernel)?.build)(target).into_iter().flatten().collect())
}

fn is_for(case: &Case, kernel: &Kernel) -> bool {
    case.kernel == kernel.name && case.fits(&kernel.formats, &kernel.consts)
}

/// Device memory of one case.
struct OnDevice<'a> {
    launcher: &'a Launcher,
    held: Vec<DeviceMemory>,
}

impl OnDevice<'_> {
    /// Launches a variant, and brings back what it wrote.
    fn launch(
        &mut self,
        (ir, entry, loaded): (&Kernel, &KernelEntry, &LoadedKernel),
        arguments: &mut Built,
    ) -> Result<()> {
        let place = Place::of(ir, arguments, self)?;
        let mut plan = Plan::default();
        plan.make(std::slice::from_ref(entry), place.args())?;
        self.launcher.launch(loaded, &mut plan)?;
        if let Some(index) = self.launcher.failed_assert()? {
            let assert = entry.asserts.get(index);
            bail!("{}", assert.map_or("an assert that does not exist", |assert| &assert.message));
        }
        place.fetch(ir, arguments, self)
    }
}

impl Room for OnDevice<'_> {
    fn upload(&mut self, bytes: &[u8]) -> Result<u64> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let memory = self.launcher.holding(bytes)?;
        let address = memory.address();
        self.held.push(memory);
        Ok(address)
    }

    fn download(&mut self, address: u64, bytes: &mut [u8]) -> Result<()> {
        let memory = self.held.iter().find(|memory| memory.address() == address);
        let memory = memory.ok_or_else(|| anyhow!("nothing was put at {address:#x}"))?;
        Ok(self.launcher.read(memory, bytes)?)
    }
}
