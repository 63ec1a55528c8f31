//! Nodes of graphs: adding them, asking them, changing them.

#![expect(unsafe_code, reason = "exported symbols have fixed names")]

use super::call;
use super::copy::check_fill;
use super::function::function;
use super::graph::{exec_of, list};
use super::host::HostFn;
use super::launch::{Params, kernel};
use super::layout::{EdgeData, Handle, HostNodeParams, KernelNodeParams, MemsetNodeParams};
use super::pointers::{In, Out};
use crate::code::{Code, Outcome, ensure};
use crate::driver::Driver;
use crate::gpu::Shape;
use crate::plan::Plan;
use crate::work::{Fill, Step};
use std::sync::Arc;

/// Where a node is to be added: the graph, the nodes it comes after, and where its handle goes.
struct Spot {
    node: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: usize,
}

fn add(driver: &Driver, spot: &Spot, step: Step) -> Outcome {
    let graph = driver.graph(spot.graph)?;
    spot.node.set(driver.add_checked(&graph, step, spot.after.array(spot.count)?)?)
}

/// What a program wrote of a kernel's node as a step.
fn kernel_step(driver: &Driver, params: In<KernelNodeParams>) -> Outcome<Step> {
    let told = params.read()?;
    let handle = if told.function != 0 { told.function } else { told.kernel };
    let shape = Shape { grid: told.grid, block: told.block, shared_bytes: told.shared_bytes };
    let params = Params { each: In::at(told.params), extra: In::at(told.extra) };
    kernel(function(driver, handle)?, shape, params).map(Step::Kernel)
}

fn memset_step(driver: &Driver, params: In<MemsetNodeParams>) -> Outcome<Step> {
    let told = params.read()?;
    let fill = Fill {
        dst: told.dst,
        value: told.value,
        element: told.element_size,
        width: told.width as u64,
        rows: told.height as u64,
        pitch: told.pitch as u64,
    };
    ensure(fill.width > 0 && fill.rows > 0, Code::ERROR_INVALID_VALUE)?;
    check_fill(driver, &fill)?;
    Ok(Step::Fill(fill))
}

fn host_step(params: In<HostNodeParams>) -> Outcome<Step> {
    let told = params.read()?;
    let function = told.function.ok_or(Code::ERROR_INVALID_VALUE)?;
    Ok(Step::Host(HostFn::new(function, told.data)))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphAddKernelNode_v2(
    node: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: usize,
    params: In<KernelNodeParams>,
) -> Code {
    call("cuGraphAddKernelNode", |driver| {
        add(driver, &Spot { node, graph, after, count }, kernel_step(driver, params)?)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphAddMemsetNode(
    node: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: usize,
    params: In<MemsetNodeParams>,
    context: Handle,
) -> Code {
    call("cuGraphAddMemsetNode", |driver| {
        driver.context(context)?;
        add(driver, &Spot { node, graph, after, count }, memset_step(driver, params)?)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphAddHostNode(
    node: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: usize,
    params: In<HostNodeParams>,
) -> Code {
    call("cuGraphAddHostNode", |driver| {
        add(driver, &Spot { node, graph, after, count }, host_step(params)?)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphAddEmptyNode(
    node: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: usize,
) -> Code {
    call("cuGraphAddEmptyNode", |driver| {
        add(driver, &Spot { node, graph, after, count }, Step::Empty)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphAddChildGraphNode(
    node: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: usize,
    child: Handle,
) -> Code {
    call("cuGraphAddChildGraphNode", |driver| {
        let plan = Plan::new(&*driver.graph(child)?)?;
        add(driver, &Spot { node, graph, after, count }, Step::Child(Arc::new(plan)))
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphAddEventRecordNode(
    node: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: usize,
    event: Handle,
) -> Code {
    call("cuGraphAddEventRecordNode", |driver| {
        let step = Step::Record(driver.event(event)?);
        add(driver, &Spot { node, graph, after, count }, step)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphAddEventWaitNode(
    node: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: usize,
    event: Handle,
) -> Code {
    call("cuGraphAddEventWaitNode", |driver| {
        let step = Step::Wait(driver.event(event)?);
        add(driver, &Spot { node, graph, after, count }, step)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphNodeGetType(node: Handle, kind: Out<u32>) -> Code {
    call("cuGraphNodeGetType", |driver| kind.set(driver.node(node)?.1.step.node_type()))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphNodeGetDependencies_v2(
    node: Handle,
    before: Out<Handle>,
    data: Out<EdgeData>,
    count: Out<usize>,
) -> Code {
    call("cuGraphNodeGetDependencies", |driver| {
        let after = driver.node(node)?.1.after;
        list(&after, before, count)?;
        edge_data(data, after.len(), count)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphNodeGetDependentNodes_v2(
    node: Handle,
    behind: Out<Handle>,
    data: Out<EdgeData>,
    count: Out<usize>,
) -> Code {
    call("cuGraphNodeGetDependentNodes", |driver| {
        let (graph, _) = driver.node(node)?;
        let edges = graph.edges().into_iter().filter(|(from, _)| *from == node);
        let dependent: Vec<u64> = edges.map(|(_, to)| to).collect();
        list(&dependent, behind, count)?;
        edge_data(data, dependent.len(), count)
    })
}

/// Says of each edge of a list that it has no data.
fn edge_data(data: Out<EdgeData>, edges: usize, count: Out<usize>) -> Outcome {
    if data.is_null() {
        return Ok(());
    }
    (0..edges.min(count.read()?)).try_for_each(|index| data.set_at(index, EdgeData::default()))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphKernelNodeGetParams_v2(
    node: Handle,
    params: Out<KernelNodeParams>,
) -> Code {
    call("cuGraphKernelNodeGetParams", |driver| {
        let Step::Kernel(kernel) = driver.node(node)?.1.step else {
            return Err(Code::ERROR_INVALID_VALUE);
        };
        // The values lie in the node until it is changed or destroyed.
        params.set(KernelNodeParams {
            function: kernel.function.id,
            grid: kernel.shape.grid,
            block: kernel.shape.block,
            shared_bytes: kernel.shape.shared_bytes,
            params: kernel.place_list(),
            extra: 0,
            kernel: 0,
            context: kernel.function.core.id,
        })
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphKernelNodeSetParams_v2(
    node: Handle,
    params: In<KernelNodeParams>,
) -> Code {
    call("cuGraphKernelNodeSetParams", |driver| driver.set_step(node, kernel_step(driver, params)?))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphMemsetNodeGetParams(
    node: Handle,
    params: Out<MemsetNodeParams>,
) -> Code {
    call("cuGraphMemsetNodeGetParams", |driver| {
        let Step::Fill(fill) = driver.node(node)?.1.step else {
            return Err(Code::ERROR_INVALID_VALUE);
        };
        let size = |value| usize::try_from(value).map_err(|_| Code::ERROR_UNKNOWN);
        params.set(MemsetNodeParams {
            dst: fill.dst,
            pitch: size(fill.pitch)?,
            value: fill.value,
            element_size: fill.element,
            width: size(fill.width)?,
            height: size(fill.rows)?,
        })
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphMemsetNodeSetParams(
    node: Handle,
    params: In<MemsetNodeParams>,
) -> Code {
    call("cuGraphMemsetNodeSetParams", |driver| driver.set_step(node, memset_step(driver, params)?))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphHostNodeSetParams(
    node: Handle,
    params: In<HostNodeParams>,
) -> Code {
    call("cuGraphHostNodeSetParams", |driver| driver.set_step(node, host_step(params)?))
}

/// Changes a node of an executable graph to another step of its kind.
fn change(driver: &Driver, (exec, node): (Handle, Handle), step: Step) -> Outcome {
    exec_of(driver, exec)?.change(node, |old| {
        let same = old.step.node_type() == step.node_type();
        ensure(same, Code::ERROR_INVALID_VALUE)?;
        old.step = step;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphExecKernelNodeSetParams_v2(
    exec: Handle,
    node: Handle,
    params: In<KernelNodeParams>,
) -> Code {
    call("cuGraphExecKernelNodeSetParams", |driver| {
        change(driver, (exec, node), kernel_step(driver, params)?)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphExecMemsetNodeSetParams(
    exec: Handle,
    node: Handle,
    params: In<MemsetNodeParams>,
    context: Handle,
) -> Code {
    call("cuGraphExecMemsetNodeSetParams", |driver| {
        driver.context(context)?;
        change(driver, (exec, node), memset_step(driver, params)?)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphExecHostNodeSetParams(
    exec: Handle,
    node: Handle,
    params: In<HostNodeParams>,
) -> Code {
    call("cuGraphExecHostNodeSetParams", |driver| change(driver, (exec, node), host_step(params)?))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphNodeSetEnabled(exec: Handle, node: Handle, enabled: u32) -> Code {
    call("cuGraphNodeSetEnabled", |driver| {
        exec_of(driver, exec)?.change(node, |node| {
            // Kernels, copies and fills can be switched off; nothing else can.
            ensure(node.step.node_type() <= 2, Code::ERROR_INVALID_VALUE)?;
            node.enabled = enabled != 0;
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphNodeGetEnabled(
    exec: Handle,
    node: Handle,
    enabled: Out<u32>,
) -> Code {
    call("cuGraphNodeGetEnabled", |driver| {
        enabled.set(u32::from(exec_of(driver, exec)?.is_enabled(node)?))
    })
}
