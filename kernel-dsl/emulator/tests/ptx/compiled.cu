// Kernels that a compiler which knows nothing of the emulator turns into PTX.
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <stdint.h>

extern "C" __global__ void softmax(const float *x, float *y, int n) {
    __shared__ float part[32];
    int t = threadIdx.x, warp = t / 32, lane = t % 32;
    x += (size_t)blockIdx.x * n;
    y += (size_t)blockIdx.x * n;
    float most = -1e30f;
    for (int i = t; i < n; i += blockDim.x) most = fmaxf(most, x[i]);
    for (int d = 16; d; d /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    if (lane == 0) part[warp] = most;
    __syncthreads();
    most = part[0];
    for (int w = 1; w < blockDim.x / 32; w++) most = fmaxf(most, part[w]);
    __syncthreads();
    float sum = 0;
    for (int i = t; i < n; i += blockDim.x) { float e = expf(x[i] - most); y[i] = e; sum += e; }
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    if (lane == 0) part[warp] = sum;
    __syncthreads();
    sum = 0;
    for (int w = 0; w < blockDim.x / 32; w++) sum += part[w];
    for (int i = t; i < n; i += blockDim.x) y[i] /= sum;
}

extern "C" __global__ void bitonic(uint32_t *keys) {
    __shared__ uint32_t s[512];
    int t = threadIdx.x;
    s[t] = keys[t];
    s[t + 256] = keys[t + 256];
    for (int k = 2; k <= 512; k *= 2)
        for (int j = k / 2; j > 0; j /= 2) {
            __syncthreads();
            int i = 2 * t - (t & (j - 1));
            uint32_t a = s[i], b = s[i + j];
            if ((a > b) == ((i & k) == 0)) { s[i] = b; s[i + j] = a; }
        }
    __syncthreads();
    keys[t] = s[t];
    keys[t + 256] = s[t + 256];
}

extern "C" __global__ void histogram(const uint8_t *data, int n, unsigned *bins) {
    __shared__ unsigned local[256];
    local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += 256 * gridDim.x) atomicAdd(&local[data[i]], 1u);
    __syncthreads();
    if (local[threadIdx.x]) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

extern "C" __global__ void narrow(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half h = __float2half(x[i]);
    __nv_bfloat16 b = __float2bfloat16(x[i]);
    __nv_fp8_e4m3 e(x[i]);
    __nv_fp8_e5m2 f(x[i]);
    y[i * 6 + 0] = __half2float(__hfma(h, h, h));
    y[i * 6 + 1] = __bfloat162float(__hmul(b, b));
    y[i * 6 + 2] = float(e);
    y[i * 6 + 3] = float(f);
    y[i * 6 + 4] = (float)(int)(x[i] * 3.7f) / 7 + (float)((long long)(x[i] * 1000) % 17);
    y[i * 6 + 5] = sinf(x[i]) + powf(fabsf(x[i]), 0.3f) + log1pf(fabsf(x[i])) + (float)cbrt((double)x[i]);
}

extern "C" __global__ void sum_once(const float *x, int n, float *parts, unsigned *ticket, float *out) {
    __shared__ float s[128];
    __shared__ bool last;
    int t = threadIdx.x;
    float v = 0;
    for (int i = blockIdx.x * 128 + t; i < n; i += 128 * gridDim.x) v += x[i];
    s[t] = v;
    __syncthreads();
    for (int d = 64; d; d /= 2) { if (t < d) s[t] += s[t + d]; __syncthreads(); }
    if (t == 0) {
        parts[blockIdx.x] = s[0];
        __threadfence();
        last = atomicAdd(ticket, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && t == 0) {
        __threadfence();
        float total = 0;
        for (int b = 0; b < gridDim.x; b++) total += parts[b];
        *out = total;
    }
}
