import triton
import triton.language as tl


@triton.jit
def shifted(row):
    row = row.to(tl.float32)
    return row - tl.max(row, axis=0)


@triton.jit
def kernel(x_ptr, y_ptr, rows, columns, sx, sx1, sy, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    for i in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = tl.load(x_ptr + i * sx + offsets * sx1, mask=offsets < columns, other=-1e38)
        numerator = tl.where(offsets < columns, tl.exp(shifted(row)), 0.0)
        y = numerator / tl.sum(numerator, axis=0)
        tl.store(y_ptr + i * sy + offsets, y.to(y_ptr.dtype.element_ty), mask=offsets < columns)


def softmax(x):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rows, columns = x.shape
    grid = lambda meta: (min(rows, 2),)
    kernel[grid](x, y, rows, columns, x.stride(0), x.stride(1), y.stride(0), BLOCK=triton.next_power_of_2(columns), num_warps=4)
    return y
