//! Launches recorded once and repeated.

use super::Gpu;
use crate::device::cuda::error::CudaError;
use cudarc::driver::{result, sys};
use std::sync::Arc;

/// A recorded run of launches. It repeats the addresses it was recorded with, so whoever holds it
/// drops it before any memory they are in.
#[derive(Debug)]
pub(in crate::device::cuda) struct Graph {
    gpu: Arc<Gpu>,
    raw: sys::CUgraphExec,
}

// SAFETY: as for `Gpu`; the driver does not lock graphs, and this one has one owner.
unsafe impl Send for Graph {}

impl Graph {
    /// Records what `launch` launches, without running it.
    pub(in crate::device::cuda) fn record<E: From<CudaError>>(
        gpu: &Arc<Gpu>,
        launch: impl FnOnce() -> Result<(), E>,
    ) -> Result<Self, E> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        gpu.call("cuStreamBeginCapture", || {
            // SAFETY: the stream is ours and records nothing yet.
            unsafe { result::stream::begin_capture(gpu.stream, mode) }
        })?;
        let launched = launch();
        // Ended whatever happened, or the stream could not be used again.
        let graph = gpu.call("cuStreamEndCapture", || {
            // SAFETY: begun above, on this thread.
            unsafe { result::stream::end_capture(gpu.stream) }
        })?;
        let graph = Template { gpu, raw: graph };
        launched?;
        let flags = sys::CUgraphInstantiate_flags(0);
        let raw = gpu.call("cuGraphInstantiateWithFlags", || {
            // SAFETY: the capture gave this graph, which is destroyed after this.
            unsafe { result::graph::instantiate(graph.raw, flags) }
        })?;
        Ok(Self { gpu: gpu.clone(), raw })
    }

    /// Runs what was recorded.
    pub(in crate::device::cuda) fn launch(&self) -> Result<(), CudaError> {
        self.gpu.call("cuGraphLaunch", || {
            // SAFETY: graph and stream live as long as `self`; the memory its kernels use is the
            // holder's, which drops this first.
            unsafe { result::graph::launch(self.raw, self.gpu.stream) }
        })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        self.gpu.release(|| {
            // SAFETY: made by `record`, destroyed once; a run in flight goes on, says the driver.
            unsafe { result::graph::exec_destroy(self.raw) }
        });
    }
}

/// What a recording gives, which is needed until it was made executable.
struct Template<'a> {
    gpu: &'a Gpu,
    raw: sys::CUgraph,
}

impl Drop for Template<'_> {
    fn drop(&mut self) {
        if self.raw.is_null() {
            return;
        }
        self.gpu.release(|| {
            // SAFETY: given by `end_capture`, destroyed once.
            unsafe { result::graph::destroy(self.raw) }
        });
    }
}
