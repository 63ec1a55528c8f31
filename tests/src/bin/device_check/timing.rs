//! Kernels at the sizes of a served model, against the least time the device could take.
//!
//! On the stand-in driver, whose time means nothing, small launches are made and not timed: that the
//! arguments are right is found out there.

use crate::options::Options;
use crate::peaks::{Peak, peak};
use crate::stage::{Batch, Product, Scene, Stage};
use crate::worker::{Message, Timed, say};
use anyhow::{Result, bail};
use tessera_ptx::KernelEntry;
use tessera_ptx::launch::Plan;
use tessera_runtime::device::{DeviceMemory, KernelBundle, Launcher};

/// Launches whose median counts, after the first ones.
const REPEATS: usize = 21;
const FIRST: usize = 3;
/// More than any second-level cache of these devices holds.
const CACHE_BYTES: usize = 256 << 20;

/// How a scene is set on a stage.
type Set = Box<dyn Fn(&mut Stage<'_>) -> Result<Scene>>;

/// Says what came of each kernel.
pub(crate) fn run(options: &Options, small: bool) -> Result<()> {
    let bundle = KernelBundle::open(&options.kernels())?;
    let launcher = Launcher::open(0)?;
    let peak = peak(&launcher.facts()?.name);
    let between = launcher.zeroed(if small { 1 } else { CACHE_BYTES })?;
    for set in scenes(small) {
        let mut stage = Stage::new(&launcher);
        let scene = set(&mut stage)?;
        let mut timed = Timed {
            what: scene.what.clone(),
            label: scene.kernel.to_owned(),
            micros: None,
            bytes: scene.bytes,
            flops: scene.flops,
            floor_micros: peak.map(|peak: Peak| peak.floor_micros(scene.bytes, scene.flops)),
            wrong: None,
        };
        let measured = time(&launcher, &bundle, (&scene, small), &between);
        match measured {
            Ok((label, micros)) => (timed.label, timed.micros) = (label, micros),
            Err(error) => timed.wrong = Some(format!("{error:#}")),
        }
        say(&Message::Timed(timed))?;
    }
    Ok(())
}

/// The label of the variant that was launched, and the median and least of its times.
fn time(
    launcher: &Launcher,
    bundle: &KernelBundle,
    (scene, small): (&Scene, bool),
    between: &DeviceMemory,
) -> Result<(String, Option<[f64; 2]>)> {
    let own = bundle.entries().into_iter().filter(|entry| entry.kernel == scene.kernel);
    let variants: Vec<KernelEntry> = own.cloned().collect();
    let mut plan = Plan::default();
    let entry = &variants[plan.make(&variants, &scene.args)?];
    let kernel = launcher.load(bundle, entry)?;
    launcher.launch(&kernel, &mut plan)?;
    if let Some(index) = launcher.failed_assert()? {
        bail!("{}", entry.asserts.get(index).map_or("an assert", |assert| &assert.message));
    }
    if small {
        return Ok((entry.label.clone(), None));
    }
    let times = launcher.time((&kernel, &mut plan), between, FIRST + REPEATS)?;
    let mut times = times[FIRST..].to_vec();
    times.sort_by(f64::total_cmp);
    Ok((entry.label.clone(), Some([times[REPEATS / 2], times[0]])))
}

/// Everything that is timed.
fn scenes(small: bool) -> Vec<Set> {
    let mut all: Vec<Set> = Vec::new();
    let (seqs, len) = if small { (2, 130) } else { (64, 4096) };
    for heads in [16, 64] {
        let batch = Batch { seqs, len, heads };
        all.push(Box::new(move |stage| stage.mla_decode(batch)));
        all.push(Box::new(move |stage| stage.mla_merge(batch)));
    }
    let (n, k) = if small { (128, 256) } else { (2048, 7168) };
    for format in ["int4-g32", "fp8-128x128"] {
        for rows in [1, 8, 64] {
            let product = Product { format, rows, n, k, experts: None };
            all.push(Box::new(move |stage| stage.product(product)));
        }
        let (experts, rows) = if small { (2, 4) } else { (32, 256) };
        let product = Product { format, rows, n, k, experts: Some(experts) };
        all.push(Box::new(move |stage| stage.product(product)));
    }
    let batch = Batch { seqs, len, heads: 1 };
    all.push(Box::new(move |stage| stage.tag_check(batch)));
    all
}
