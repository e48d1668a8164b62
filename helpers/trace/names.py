"""What the names in a trace mean: which calls wait, which kernels communicate, and names short enough to read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

# Categories as Kineto writes them (pytorch/kineto, libkineto/src/ActivityType.cpp), and with a capital as PyTorch 1.8
# to 1.11 did; what is not here is dropped.
KIND_OF = {
    "cpu_op": "operator", "user_annotation": "annotation", "python_function": "python",
    "cuda_runtime": "call", "cuda_driver": "call", "xpu_runtime": "call", "xpu_driver": "call",
    "privateuse1_runtime": "call", "privateuse1_driver": "call",
    "kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "memset", "gpu_user_annotation": "gpu annotation",
    "Operator": "operator", "Python": "python", "Runtime": "call", "Kernel": "kernel", "Memcpy": "copy",
    "Memset": "memset",
}  # fmt: skip
DROPPED = (
    "Trace",
    "overhead",
    "cuda_sync",
    "cuda_profiler_range",
    "cpu_instant_event",
    "ac2g",
    "fwdbwd",
    None,
)
"""Categories that are known and not needed."""
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
# Names that say nothing. CUTLASS gives its kernels as the first template argument, cuBLAS in the namespace.
_NAMELESS = re.compile(r"(device_)?kernel2?", re.IGNORECASE)
_FIRST = re.compile(
    r"<\s*(?:\w+::)*(?!(?:unsigned|int|long|short|char|bool|float|double|void|__half)\b)([A-Za-z_]\w*)"
)
_MARKS = re.compile(r"::|[<>()\[\]{} ]")


def short(name: str, limit: int = 40) -> str:
    """A name to read in a table or a bar: no template arguments, no namespaces, at most `limit` characters.

    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, …>(…)" becomes
    "elementwise (Fill)": the part in brackets says what the general kernel was used for.
    """
    text = name.replace("(anonymous namespace)::", "").replace("operator()", "call")
    if not name.startswith(("Memcpy", "Memset")) and ("<" in text or "(" in text):
        room, last, rest = _function(text)
        if _NAMELESS.fullmatch(last):
            first = _FIRST.match(rest)
            text = first[1] if first else f"{room}::{last}" if room else last
        else:
            inner = [found for found in _FUNCTOR.findall(rest) if found not in _DULL]
            plain = _GENERAL.get(last, last)
            text = f"{plain} ({inner[0]})" if inner and inner[0] not in plain else plain
    return cut(text, limit)


def cut(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def distinct(names: Sequence[str], limit: int = 40) -> list[str]:
    """Each name in short. Where cutting makes two alike that are not, they get as much room as tells them apart."""
    whole = [short(name, len(name) + 1) for name in names]
    found = {text: text for text in whole}
    for room in range(limit, max(map(len, whole), default=0), 20):
        left = [text for text in found if found[text] == text and len(text) > room]
        alike = Counter(text[: room - 1] for text in left)
        found |= {text: text[: room - 1] + "…" for text in left if alike[text[: room - 1]] == 1}
    return [found[text] for text in whole]


def _function(text: str) -> tuple[str, str, str]:
    """A kernel's innermost namespace or class, its name, and what stands behind that: template arguments, parameters."""
    depth, start, end, room = 0, 0, -1, ""
    for mark in _MARKS.finditer(text):
        what, at = mark[0], mark.start()
        if what in "<([{":
            if depth == 0 and at > start and end < 0:
                end = at
            if depth == 0 and what == "(" and at > start:
                break
            depth += 1
        elif what in ">)]}":
            depth = max(depth - 1, 0)
        elif depth == 0:  # a type, a namespace, a class; the name is yet to come
            if text[start:at]:
                room = text[start : end if end >= 0 else at] if what == "::" else ""
            start, end = mark.end(), -1
    end = end if end >= 0 else len(text)
    return room, text[start:end] or text, text[end:]
