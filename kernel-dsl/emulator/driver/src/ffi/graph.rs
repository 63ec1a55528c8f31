//! Graphs as a whole: creation, structure, instantiation, launch, update.

#![expect(unsafe_code, reason = "exported symbols have fixed names")]

use super::call;
use super::layout::{EdgeData, Handle, InstantiateParams, UpdateResult};
use super::pointers::{In, Out};
use crate::code::{Code, Outcome, ensure};
use crate::driver::Driver;
use crate::plan::GraphExec;
use std::ffi::c_char;
use std::sync::Arc;

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphCreate(graph: Out<Handle>, flags: u32) -> Code {
    call("cuGraphCreate", |driver| {
        ensure(flags == 0, Code::ERROR_INVALID_VALUE)?;
        graph.set(driver.new_graph().id)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphClone(clone: Out<Handle>, graph: Handle) -> Code {
    call("cuGraphClone", |driver| clone.set(driver.clone_graph(&*driver.graph(graph)?).id))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphDestroy(graph: Handle) -> Code {
    call("cuGraphDestroy", |driver| {
        driver.drop_graph(&*driver.graph(graph)?);
        Ok(())
    })
}

/// Writes a list as the calls that list things do: without a place for it, only its length; with
/// one, as much as fits, and zeros in what is left.
pub(super) fn list(items: &[u64], place: Out<Handle>, count: Out<usize>) -> Outcome {
    if place.is_null() {
        return count.set(items.len());
    }
    let room = count.read()?;
    for index in 0..room {
        place.set_at(index, items.get(index).copied().unwrap_or(0))?;
    }
    count.set(room.min(items.len()))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphGetNodes(
    graph: Handle,
    nodes: Out<Handle>,
    count: Out<usize>,
) -> Code {
    call("cuGraphGetNodes", |driver| {
        let all: Vec<u64> = driver.graph(graph)?.nodes().iter().map(|node| node.handle).collect();
        list(&all, nodes, count)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphGetRootNodes(
    graph: Handle,
    nodes: Out<Handle>,
    count: Out<usize>,
) -> Code {
    call("cuGraphGetRootNodes", |driver| {
        let nodes_of = driver.graph(graph)?.nodes();
        let roots = nodes_of.iter().filter(|node| node.after.is_empty());
        let roots: Vec<u64> = roots.map(|node| node.handle).collect();
        list(&roots, nodes, count)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphGetEdges_v2(
    graph: Handle,
    from: Out<Handle>,
    to: Out<Handle>,
    data: Out<EdgeData>,
    count: Out<usize>,
) -> Code {
    call("cuGraphGetEdges", |driver| {
        let edges = driver.graph(graph)?.edges();
        if from.is_null() || to.is_null() {
            return count.set(edges.len());
        }
        let room = count.read()?;
        for (index, (source, target)) in edges.iter().take(room).enumerate() {
            from.set_at(index, *source)?;
            to.set_at(index, *target)?;
            if !data.is_null() {
                data.set_at(index, EdgeData::default())?;
            }
        }
        count.set(room.min(edges.len()))
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphAddDependencies_v2(
    graph: Handle,
    from: In<Handle>,
    to: In<Handle>,
    data: In<EdgeData>,
    count: usize,
) -> Code {
    call("cuGraphAddDependencies", |driver| {
        // Edges with data start a node before the one it comes after has ended.
        ensure(data.is_null(), Code::ERROR_NOT_SUPPORTED)?;
        let edges = from.array(count)?.into_iter().zip(to.array(count)?);
        driver.add_edges(&*driver.graph(graph)?, &edges.collect::<Vec<_>>())
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphInstantiateWithFlags(
    exec: Out<Handle>,
    graph: Handle,
    flags: u64,
) -> Code {
    call("cuGraphInstantiate", |driver| exec.set(driver.instantiate(graph, flags)?))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphInstantiate_v2(
    exec: Out<Handle>,
    graph: Handle,
    error_node: Out<Handle>,
    log: Out<c_char>,
    log_bytes: usize,
) -> Code {
    call("cuGraphInstantiate", |driver| {
        error_node.offer(0)?;
        if log_bytes > 0 {
            log.offer(0)?;
        }
        exec.set(driver.instantiate(graph, 0)?)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphInstantiateWithParams(
    exec: Out<Handle>,
    graph: Handle,
    params: Out<InstantiateParams>,
) -> Code {
    call("cuGraphInstantiate", |driver| {
        let mut told = params.read()?;
        let made = driver.instantiate(graph, told.flags);
        // `CUDA_GRAPH_INSTANTIATE_SUCCESS` and `_ERROR`.
        (told.result, told.error_node) = (u32::from(made.is_err()), 0);
        params.set(told)?;
        exec.set(made?)
    })
}

/// An executable graph by its handle.
pub(super) fn exec_of(driver: &Driver, exec: Handle) -> Outcome<Arc<GraphExec>> {
    driver.execs.find(exec).map_err(|_| Code::ERROR_INVALID_VALUE)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphExecGetFlags(exec: Handle, flags: Out<u64>) -> Code {
    call("cuGraphExecGetFlags", |driver| flags.set(exec_of(driver, exec)?.flags))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphLaunch(exec: Handle, stream: Handle) -> Code {
    call("cuGraphLaunch", |driver| {
        let (exec, stream) = (exec_of(driver, exec)?, driver.stream(stream)?);
        driver.launch_graph(&exec, &stream)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphUpload(exec: Handle, stream: Handle) -> Code {
    call("cuGraphUpload", |driver| {
        exec_of(driver, exec)?;
        driver.stream(stream).map(|_| ())
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphExecDestroy(exec: Handle) -> Code {
    call("cuGraphExecDestroy", |driver| {
        let removed = driver.execs.remove(exec);
        removed.map(|_| ()).map_err(|_| Code::ERROR_INVALID_VALUE)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphExecUpdate_v2(
    exec: Handle,
    graph: Handle,
    told: Out<UpdateResult>,
) -> Code {
    call("cuGraphExecUpdate", |driver| {
        let (exec, graph) = (exec_of(driver, exec)?, driver.graph(graph)?);
        let updated = exec.update(&graph);
        let (result, error_node) = match &updated {
            Ok(()) => (0, 0),
            Err(mismatch) => (mismatch.result, mismatch.node),
        };
        told.set(UpdateResult { result, error_node, error_from_node: 0 })?;
        updated.map_err(|_| Code::ERROR_GRAPH_EXEC_UPDATE_FAILURE)
    })
}
