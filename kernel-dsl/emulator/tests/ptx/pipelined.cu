// Asynchronous copies and barriers as libcu++ writes them.
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/ptx>
#include <stdint.h>

// Doubles a row through a bulk load, and writes it by a bulk store.
extern "C" __global__ void bulk(const int *x, int *y) {
    __shared__ alignas(128) int tile[256];
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    if (threadIdx.x == 0) {
        init(&bar, blockDim.x);
        cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster);
    }
    __syncthreads();
    cuda::barrier<cuda::thread_scope_block>::arrival_token token;
    if (threadIdx.x == 0) {
        cuda::device::memcpy_async_tx(tile, x + blockIdx.x * 256, cuda::aligned_size_t<16>(sizeof(tile)), bar);
        token = cuda::device::barrier_arrive_tx(bar, 1, sizeof(tile));
    } else {
        token = bar.arrive();
    }
    bar.wait(std::move(token));
    for (int i = threadIdx.x; i < 256; i += blockDim.x) tile[i] *= 2;
    cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        cuda::ptx::cp_async_bulk(cuda::ptx::space_global, cuda::ptx::space_shared, y + blockIdx.x * 256, tile, sizeof(tile));
        cuda::ptx::cp_async_bulk_commit_group();
        cuda::ptx::cp_async_bulk_wait_group_read(cuda::ptx::n32_t<0>());
    }
}

// Sums tiles through a pipeline of two stages that the threads of a block share.
extern "C" __global__ void staged(const int4 *x, int4 *y, int tiles) {
    namespace cg = cooperative_groups;
    auto block = cg::this_thread_block();
    __shared__ int4 buffer[2][128];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto pipeline = cuda::make_pipeline(block, &state);
    int4 sum = make_int4(0, 0, 0, 0);
    int next = 0;
    for (int i = 0; i < tiles; i++) {
        for (; next < tiles && next < i + 2; next++) {
            pipeline.producer_acquire();
            cuda::memcpy_async(&buffer[next % 2][threadIdx.x], x + next * 128 + threadIdx.x, cuda::aligned_size_t<16>(16), pipeline);
            pipeline.producer_commit();
        }
        pipeline.consumer_wait();
        int4 v = buffer[i % 2][127 - threadIdx.x];
        sum.x += v.x; sum.y += v.y; sum.z += v.z; sum.w += v.w;
        pipeline.consumer_release();
    }
    y[threadIdx.x] = sum;
}
