"""What the names in a trace mean: which calls wait, which kernels communicate, and names short enough to read."""

from __future__ import annotations

import re

# Categories as Kineto writes them (pytorch/kineto, libkineto/src/ActivityType.cpp); what is not here is dropped.
KIND_OF = {
    "cpu_op": "operator", "user_annotation": "annotation", "python_function": "python",
    "cuda_runtime": "call", "cuda_driver": "call", "privateuse1_runtime": "call", "privateuse1_driver": "call",
    "kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "memset", "gpu_user_annotation": "gpu annotation",
}  # fmt: skip
KINDS = tuple(dict.fromkeys(KIND_OF.values()))
"""Kinds of rows; a row's `kind` is an index here."""

WORK_KINDS = ("kernel", "copy", "memset")
FAMILIES = ("compute", "memory", "copy", "communication")
"""What device work is: kernels; copies inside the device and fills; copies between memories; collectives."""

_LAUNCHES = re.compile(
    r"(cuda|hip|cu)(Launch|ExtLaunch|ExtModuleLaunch|ModuleLaunch|GraphLaunch)|cudaLaunchCooperativeKernel"
)
_COPIES = re.compile(r"(cuda|hip|cu)Memcpy")
# NCCL's kernels: ncclDevKernel_… since 2.19, ncclKernel_… before; RCCL keeps the names.
_COMMUNICATES = re.compile(r"nccl|rccl", re.IGNORECASE)
# Kineto writes "Memcpy HtoD (Pinned -> Device)": libkineto/src/CuptiActivity.cpp, memcpyName.
_ACROSS = re.compile(r"Memcpy (HtoD|DtoH|PtoP|HtoH|HtoA|AtoH)|\b(Host|Pinned|Pageable)\b", re.IGNORECASE)


def launches(name: str) -> bool:
    """Whether this runtime call launches a kernel or a graph of them."""
    return bool(_LAUNCHES.match(name))


def copies(name: str) -> bool:
    """Whether this runtime call copies memory."""
    return bool(_COPIES.match(name))


def family(name: str, kind: str) -> str:
    """One of `FAMILIES`, for device work of this name and kind."""
    if kind == "copy":
        return "copy" if _ACROSS.search(name) else "memory"
    if kind == "memset":
        return "memory"
    return "communication" if _COMMUNICATES.search(name) else "compute"


_FUNCTOR = re.compile(r"(\w+?)(?:_kernel_cuda|_kernel_impl|Functor(?:OnSelf)?_?\w*|_kernel|Ops)\b")
# ATen's general kernels, which say by a template argument what they are used for; the names they get here
_GENERAL = {
    "vectorized_elementwise_kernel": "elementwise", "unrolled_elementwise_kernel": "elementwise",
    "elementwise_kernel": "elementwise", "elementwise_kernel_with_index": "elementwise",
    "reduce_kernel": "reduce", "multi_tensor_apply_kernel": "foreach", "index_elementwise_kernel": "index",
}  # fmt: skip
_DULL = set("elementwise vectorized_elementwise unrolled_elementwise gpu reduce CUDA Binary Unary".split())


def short(name: str, limit: int = 40) -> str:
    """A name to read in a table or a bar: no template arguments, no namespaces, at most `limit` characters.

    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, …>(…)" becomes
    "elementwise (Fill)": the part in brackets says what the general kernel was used for.
    """
    text = name.removeprefix("void ").replace("(anonymous namespace)::", "").replace("operator()", "call")
    if not name.startswith(("Memcpy", "Memset")) and ("<" in text or "(" in text):
        head = re.split(r"[<(]", text, maxsplit=1)[0]
        last = head.rsplit("::", 1)[-1].strip() or text
        inner = [found for found in _FUNCTOR.findall(text[len(head) :]) if found not in _DULL]
        plain = _GENERAL.get(last, last)
        text = f"{plain} ({inner[0]})" if inner and inner[0] not in plain else plain
    return text if len(text) <= limit else text[: limit - 1] + "…"
