# %% [markdown]
# # 21 · A kernel of your own
#
# ## When is no operator the right one?
#
# **Time** 60 min. **Before this** lesson 11.

# %% setup
import torch

from helpers import kernels, lesson

triton, tl = kernels.load()  # import triton; import triton.language as tl
lesson.start("21_a_kernel_of_your_own", evidence=["live (CPU)"])

# %% experiment
you = lesson.predict({"x.T": ..., "x.T.contiguous()": ...}, choices=["copies", "does not"])

# %% experiment
you.against({"x.T": "does not", "x.T.contiguous()": "copies"}, evidence="live (CPU)")

# %% [markdown]
# **Exercise 21.1 — softmax, read once** (★★, 15 min)
#
# Softmax.
#
# <details><summary>Hint 1</summary>One</details>
#
# <details><summary>Hint 2</summary>Two</details>
#
# <details><summary>The idea</summary>Three</details>


# %% exercise="softmax"
@triton.jit
def softmax_kernel(x, out, row_step, column_step, columns, BLOCK: tl.constexpr):
    """Program i: row i. x, out: pointers; row_step, column_step: x's strides. Change the arguments as you like."""
    ### BEGIN SOLUTION
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    mask = at < columns
    numbers = tl.load(x + row * row_step + at * column_step, mask=mask, other=-float("inf")).to(tl.float32)
    powers = tl.exp(numbers - tl.max(numbers, 0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, 0), mask=mask)
    ### END SOLUTION


def softmax(x: torch.Tensor) -> torch.Tensor:
    """x.softmax(-1), by kernels alone, in the dtype of x.

    x: (rows, columns), both at least 1, columns at most 4,096; float32, float16 or bfloat16, any strides and offset, all
    numbers finite. Returns (rows, columns), contiguous. The sum is taken in float32.
    Budget: rows · columns elements loaded, and as many stored.
    """
    ### BEGIN SOLUTION
    rows, columns = x.shape
    out = torch.empty(rows, columns, dtype=x.dtype)
    softmax_kernel[(rows,)](x, out, *x.stride(), columns, BLOCK=triton.next_power_of_2(columns))
    return out
    ### END SOLUTION


# %% test="softmax" points=1
from helpers.lessons.a_kernel_of_your_own.exercises import Rows, check_softmax

check_softmax(Rows(4, 8), Rows(3, 33), Rows(3, 20, layout="columns"), Rows(2, 48, "float16"))

# %% hidden="softmax" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.a_kernel_of_your_own.exercises import Rows, check_softmax

check_softmax(Rows(1, 1), Rows(5, 1), Rows(1, 777), Rows(7, 65, layout="sliced"), Rows(6, 31, layout="every second"))
check_softmax(Rows(4, 10, layout="one row"), Rows(5, 100, shift=300.0), Rows(5, 100, shift=-300.0, scale=40.0))
check_softmax(Rows(3, 3001, "float16", scale=0.01), Rows(3, 3001, "bfloat16", "columns"), Rows(2, 4096))
### END HIDDEN TESTS
