@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid_n, pid_m = tl.program_id(0), tl.program_id(1)
    offs_m = pid_m * BM + tl.arange(0, BM)
    offs_n = pid_n * BN + tl.arange(0, BN)
    offs_k = tl.arange(0, BK)
    a_ptrs = a_ptr + offs_m[:, None] * sam + offs_k[None, :] * sak
    b_ptrs = b_ptr + offs_k[:, None] * sbk + offs_n[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        left = offs_k < K - k * BK
        a = tl.load(a_ptrs, mask=(offs_m < M)[:, None] & left[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=left[:, None] & (offs_n < N)[None, :], other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
        a_ptrs += BK * sak
        b_ptrs += BK * sbk
    mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]
    tl.store(c_ptr + offs_m[:, None] * scm + offs_n[None, :] * scn, acc.to(c_ptr.dtype.element_ty), mask=mask)


def matmul(a, b, rows=16, columns=16, inner=16):
    M, K = a.shape
    _, N = b.shape
    c = a.new_empty((M, N))
    kernel[(triton.cdiv(N, columns), triton.cdiv(M, rows))](
        a, b, c, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1),
        BM=rows, BN=columns, BK=inner, num_warps=4, num_stages=2,
    )
    return c
