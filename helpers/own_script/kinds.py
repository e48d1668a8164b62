"""The kinds of cost that a line of a script can have, and what to say of each."""

from __future__ import annotations

from typing import NamedTuple


class Advice(NamedTuple):
    """What to say of a kind of cost. what: in the table; sentence: what to try; lessons: which teach it."""

    what: str
    sentence: str
    lessons: str


ADVICE = {
    "value": Advice("waits: a value is read", "leave the number on the GPU and read it every so many steps: `.item()`, `print`, "
                    "`if`, `float()` make the host wait for all work before", "03"),
    "counted": Advice("waits: a size depends on values", "a mask, nonzero() or unique() makes the host wait for a count: "
                      "torch.where, a multiplication by the mask or padded shapes need none", "03"),
    "back": Advice("waits: a copy to the host", "keep it on the GPU, or copy it with non_blocking=True into pinned memory and "
                   "look at it a step later", "04"),
    "synchronize": Advice("waits: synchronize()", "take it out: time with events, or over many steps", "03"),
    "cache": Advice("waits: memory given back", "take empty_cache() out: the next step asks for the same memory again", "08"),
    "there": Advice("copies to the GPU", "copy once before the loop what stays the same; what changes, from pinned memory with "
                    "non_blocking=True", "04"),
    "collective": Advice("collectives", "let them run beside the backward pass (DDP's buckets), send less often (no_sync() while "
                         "gradients are accumulated) or less (bfloat16), and no number in every step", "14"),
    "python": Advice("Python", "the host works while the GPU waits: do it once before the loop, with tensors in place of Python "
                     "loops, or in the loader's workers", "00"),
    "loader": Advice("loading in this process", "let workers do it (num_workers) and make one sample's work smaller", "04"),
    "workers": Advice("waits for the loader", "more workers, or less work for each sample", "04"),
    "loop": Advice("many launches in a loop", "one operator for all of them: torch._foreach_*, a fused optimizer, a larger "
                   "tensor", "06"),
    "optimizer": Advice("many launches of an optimizer", "foreach=True or fused=True does the same in a few launches", "06"),
    "made": Advice("made anew in each step", "make it once before the loop (a buffer of the module), or on the GPU: "
                   "device=…", "01"),
    "copied": Advice("copies on the GPU", "contiguous(), clone(), casts and concatenations only move bytes: lay the tensor out "
                     "as it is read", "01"),
    "fused": Advice("kernels that only move bytes", "one kernel for the line: PyTorch's own operator for it, or "
                    "torch.compile", "11"),
    "attention": Advice("attention by hand", "scaled_dot_product_attention never writes the scores to memory", "02"),
    "dense": Advice(
        "an embedding's dense gradients",
        "backward writes a gradient for every row, and the optimizer reads and writes them all: sparse=True with an "
        "optimizer that takes it (SparseAdam, SGD), where few rows are used",
        "06",
    ),
    "wide": Advice("64-bit numbers", "a Python number or a float64 tensor has crept in: keep tensors in float32 or less", "10"),
    "narrow": Advice("products in float32", "torch.autocast with bfloat16, or at least "
                     "torch.set_float32_matmul_precision('high'): other rounding, so compare the losses", "10"),
    "unused": Advice("a forward pass without a backward pass", "take what the training's own forward pass has computed already, "
                     "or run it every so many steps; under torch.no_grad(), or it keeps its graph", "02"),
    "layout": Advice("convolutions in NCHW", "model and images .to(memory_format=torch.channels_last): Tensor Cores read NHWC, and "
                     "otherwise cuDNN converts each tensor there and back", "12"),
    "switch": Advice("a switch for finding mistakes is on", "take it out once the mistake is found", "00"),
    "blocking": Advice("launches that block", "take CUDA_LAUNCH_BLOCKING out: the host waits for every kernel", "03"),
    "anomaly": Advice("anomaly detection", "take torch.autograd.set_detect_anomaly(True) out: it looks at every gradient, and "
                      "waits for each answer", "02"),
    "grows": Advice("memory that grows", "something keeps each step's tensors: add `.item()` or `.detach()` to what is summed up or "
                    "put into a list", "09"),
    "torch": Advice("PyTorch's own Python", "PyTorch works in Python here, beside its launches: save a checkpoint less often or in a "
                    "thread of its own, take an optimizer with fused=True", "06"),
    "launches": Advice("the host's launches, all of them", "a CUDA graph launches a step at once (on a real GPU "
                       "torch.compile(mode='reduce-overhead') makes one); larger batches give each launch more to do", "07"),
    "compiled": Advice("kernels that only move bytes, all of them", "torch.compile fuses what lies between products", "11"),
}  # fmt: skip
#: kinds that no script needs, however little they take
NEVER_NEEDED = {"value", "synchronize", "cache", "back"}
#: kinds whose cost the simulated clock does not have
UNPRICED = {"grows": "memory", "layout": "not simulated", "switch": "not simulated"}
#: the wait that CUDA_LAUNCH_BLOCKING makes of every launch
BLOCKING = "CUDA_LAUNCH_BLOCKING"
