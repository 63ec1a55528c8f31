"""Kernels that Triton 3.4.0 compiles for sm_90, for tests of the emulator.

    GPUTarget("cuda", 90, 32); matmul: BM = BN = 64, BK = 32, 4 warps, 3 stages;
    attention: D = BM = BN = 64, 4 warps, 2 stages; all pointers and sizes divisible by 16.
"""

import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, M, N, K, sam, sbk, scm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    rm = pm * BM + tl.arange(0, BM)
    rn = pn * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa = a + rm[:, None] * sam + rk[None, :]
    pb = b + rk[:, None] * sbk + rn[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = tl.load(pa, mask=rk[None, :] + k < K, other=0.0)
        y = tl.load(pb, mask=rk[:, None] + k < K, other=0.0)
        acc = tl.dot(x, y, acc)
        pa += BK
        pb += BK * sbk
    tl.store(c + rm[:, None] * scm + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def attention(q, k, v, o, n, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.arange(0, BN)
    rd = tl.arange(0, D)
    x = tl.load(q + rm[:, None] * D + rd[None, :], mask=rm[:, None] < n, other=0.0)
    m = tl.full((BM,), -1e30, tl.float32)
    l = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for j in range(0, n, BN):
        inside = (j + rn)[:, None] < n
        keys = tl.load(k + (j + rn)[:, None] * D + rd[None, :], mask=inside, other=0.0)
        s = tl.dot(x, tl.trans(keys)) * scale
        s = tl.where((j + rn)[None, :] < n, s, -1e30)
        most = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - most[:, None])
        a = tl.exp2(m - most)
        l = l * a + tl.sum(p, 1)
        acc = acc * a[:, None]
        values = tl.load(v + (j + rn)[:, None] * D + rd[None, :], mask=inside, other=0.0)
        acc = tl.dot(p.to(tl.float16), values, acc)
        m = most
    tl.store(o + rm[:, None] * D + rd[None, :], acc / l[:, None], mask=rm[:, None] < n)
