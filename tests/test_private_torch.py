"""The private names of PyTorch that helpers relies on: an upgrade that moves one fails here, by name, and nowhere else first."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.overrides import TorchFunctionMode

from helpers.pytorch import private_torch

ROOT = Path(__file__).resolve().parents[1]
HELPERS = sorted((ROOT / "helpers").rglob("*.py"))
#: operators have private names too, and are what lessons are about
OPERATORS = re.compile(
    r"torch\._(foreach_\w+|fused_\w+|int_mm|weight_int8pack_mm|chunk_cat)|torch\.ops\.aten\._\w+"
)


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def inside_backward(name: str) -> Any:
    """What private_torch's function says while backward runs."""
    said: list[Any] = []
    x = torch.ones(1, requires_grad=True)
    x.register_hook(lambda grad: said.append(getattr(private_torch, name)()))
    (x * 2).sum().backward()
    return said[0]


def modes_seen(work: Callable[[], Any]) -> list[str]:
    seen: list[str] = []

    class Mode(private_torch.TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Mode():
        work()
    return seen


def aside() -> None:
    with private_torch.disable_current_modes():
        torch.ones(1)


def observed() -> list[str]:
    """The first operator that PyTorch's observers note."""
    state, options = torch.autograd.ProfilerState.CPU, private_torch.ProfilerOptions()
    private_torch.observe(private_torch.ProfilerConfig(state, *[False] * 5, options))
    torch.ones(1)
    return [e.name() for thread in private_torch.observed() for e in thread if e.kind() == "push"][:1]


def popped() -> None:
    """One operator unseen, and one that is seen again."""
    mode = private_torch.pop_mode(None)
    torch.zeros(1)
    private_torch.push_mode(mode)
    torch.ones(1)


def called_first() -> bool:
    with TorchFunctionMode() as first, TorchFunctionMode() as second:
        inner = private_torch.call_mode()
    return inner is second and first is not second and private_torch.call_mode() is None


def saving_first() -> bool:
    def pack(t: torch.Tensor) -> torch.Tensor:
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, pack):
        on_top = private_torch.saving_hooks(True)
    return on_top is not None and on_top[0] is pack and private_torch.saving_hooks(True) is None


def excluded() -> bool:
    keys = private_torch.DispatchKeySet(private_torch.DispatchKey.AutocastCPU)
    with torch.autocast("cpu"), private_torch.ExcludeDispatchKeyGuard(keys):
        return (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float32


def whole_below_autograd() -> bool:
    def work() -> None:
        with private_torch.below_autograd():
            torch.ops.aten._fused_rms_norm(torch.ones(2, 2, device="meta"), [2], None, None)

    return modes_seen(work)[-1] == "aten._fused_rms_norm.default"


def excluded_is_told() -> bool:
    def now() -> int:
        return private_torch.excluded_keys().raw_repr()  # type: ignore[no-any-return]

    before, keys = now(), private_torch.DispatchKeySet(private_torch.DispatchKey.ADInplaceOrView)
    with private_torch.ExcludeDispatchKeyGuard(keys):
        inside = now()
    return before == now() != inside


def autocast_by_key() -> bool:
    key = "AutocastCPU"
    private_torch.exclude_key(key, False)
    private_torch.include_key(key, True)
    try:
        return (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.bfloat16
    finally:  # as it is where no autocast is on
        private_torch.include_key(key, False)
        private_torch.exclude_key(key, True)


def function_seen(block: Any) -> bool:
    seen = []

    class Told(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    told = torch.ones(1).as_subclass(Told)
    seen.clear()
    with block:
        told + 1
    return bool(seen)


def attributes(name: str, *wanted: str) -> bool:
    return all(hasattr(getattr(private_torch, name), each) for each in wanted)


#: name → whether what helpers relies on is so
RELIED_ON: dict[str, Callable[[], Any]] = {
    "TorchDispatchMode": lambda: modes_seen(lambda: torch.ones(1)) == ["aten.ones.default"],
    "disable_current_modes": lambda: modes_seen(aside) == [],
    "modes_on": lambda: private_torch.modes_on() == 0,
    "pop_mode": lambda: modes_seen(popped) == ["aten.ones.default"],
    "push_mode": lambda: modes_seen(popped) == ["aten.ones.default"],
    "call_mode": called_first,
    "saving_hooks": saving_first,
    "disabled_dispatch": lambda: callable(private_torch.disabled_dispatch),
    "DisableTorchFunction": lambda: not function_seen(private_torch.DisableTorchFunction()),
    "DisableAutocast": lambda: hasattr(private_torch.DisableAutocast, "__enter__"),
    "DispatchKey": lambda: attributes("DispatchKey", "BackendSelect", "CPU", "AutocastCUDA"),
    "DispatchKeySet": lambda: private_torch.DispatchKeySet(private_torch.DispatchKey.CPU).has(private_torch.DispatchKey.CPU),
    "below_autograd": whole_below_autograd,
    "ExcludeDispatchKeyGuard": excluded,
    "exclude_key": autocast_by_key,
    "include_key": autocast_by_key,
    "dispatch_keys": lambda: "CPU" in str(private_torch.dispatch_keys(torch.empty(1))),
    "excluded_keys": excluded_is_told,
    "keys_behind": lambda: private_torch.keys_behind(private_torch.DispatchKey.BackendSelect).has(private_torch.DispatchKey.CPU),
    "ProfilerConfig": lambda: observed() == ["aten::ones"],
    "ProfilerOptions": lambda: observed() == ["aten::ones"],
    "observe": lambda: observed() == ["aten::ones"],
    "observed": lambda: observed() == ["aten::ones"],
    "has_kernel": lambda: private_torch.has_kernel("aten::add.Tensor", "CPU") and not private_torch.has_kernel("aten::matmul", "CPU"),
    "runs_on": lambda: private_torch.runs_on("aten::matmul", "CPU"),
    "operator_names": lambda: {"c10d::allreduce_", "aten::mm"} <= set(private_torch.operator_names()),
    "schema": lambda: [a.name for a in private_torch.schema("aten::mm", "").arguments] == ["self", "mat2"],
    "C": lambda: torch.to_dlpack is private_torch.C._to_dlpack,
    "ScriptObject": lambda: hasattr(private_torch.ScriptObject, "_type"),
    "hidden_from_dynamo": lambda: private_torch.hidden_from_dynamo(lambda: 7)() == 7,
    "VF": lambda: private_torch.VF.dropout(torch.ones(2), 0.5, False).sum() == 2,
    "decompositions": lambda: torch.ops.aten._fused_rms_norm_backward.default in private_torch.decompositions,
    "fx_config": lambda: attributes("fx_config", "meta_nonzero_assume_all_nonzero"),
    "parse_to": lambda: private_torch.parse_to(torch.float64)[1] is torch.float64,
    "write_file": lambda: callable(private_torch.write_file),
    "tree_leaves": lambda: private_torch.tree_leaves({"a": [1, (2,)]}) == [1, 2],
    "tree_map_only": lambda: private_torch.tree_map_only(int, lambda i: i + 1, [1, "b"]) == [2, "b"],
    "FakeTensorMode": lambda: "allow_non_fake_inputs" in parameters(private_torch.FakeTensorMode),
    "current_autograd_node": lambda: private_torch.current_autograd_node() is None and inside_backward("current_autograd_node"),
    "current_graph_task": lambda: private_torch.current_graph_task() == -1 and inside_backward("current_graph_task") >= 0,
    "sequence_number": lambda: private_torch.sequence_number() >= 0,
    "saved_tensors_hooks": lambda: attributes(
        "saved_tensors_hooks", "_top_saved_tensors_default_hooks", "_pop_saved_tensors_default_hooks",
        "_push_saved_tensors_default_hooks", "_saved_tensors_hooks_set_tracing", "_saved_tensors_hooks_disable",
        "_saved_tensors_hooks_enable", "_saved_tensors_hooks_get_disabled_error_message",
    ),
    "profiler_enabled": lambda: private_torch.profiler_enabled() is False,
    "run_backward": lambda: torch.autograd._engine_run_backward is private_torch.run_backward,
    "optimizer_reads": lambda: private_torch.optimizer_reads(torch.tensor(3.0)) == 3.0,
    "infer_device_type": lambda: private_torch.infer_device_type(torch.ones(1)) in ("cpu", "cuda"),
    "DataLoaderIterator": lambda: parameters(private_torch.DataLoaderIterator.__init__)[:2] == ["self", "loader"],
    "SingleLoaderIterator": lambda: (
        issubclass(private_torch.SingleLoaderIterator, private_torch.DataLoaderIterator)
        and callable(torch.utils.data.DataLoader._get_iterator)
    ),
    "data_utils": lambda: callable(private_torch.data_utils.pin_memory.pin_memory),
    "worker": lambda: private_torch.worker._worker_info is None,
    "Backend": lambda: attributes("Backend", "allreduce", "broadcast", "send", "size"),
    "ProcessGroup": lambda: attributes("ProcessGroup", "unbox", "size"),
    "Work": lambda: attributes("Work", "unbox", "boxed", "wait", "is_completed", "get_future"),
    "Future": lambda: attributes("Future", "wait", "then", "value", "set_result"),
    "collect_all": lambda: callable(private_torch.collect_all),
    "FakeStore": lambda: issubclass(private_torch.FakeStore, dist.Store),
    "AsyncCollectiveTensor": lambda: issubclass(private_torch.AsyncCollectiveTensor, torch.Tensor),
    "resolve_group": lambda: callable(private_torch.resolve_group),
    "verify_shapes": lambda: callable(nn.parallel.distributed._verify_param_shape_across_processes),
    "default_device": lambda: isinstance(private_torch.default_device(), torch.device),
    "has_hooks": lambda: callable(private_torch.has_hooks),
    "dynamo_config": lambda: attributes("dynamo_config", "recompile_limit"),
    "dynamo_counters": lambda: callable(private_torch.dynamo_counters.clear),
    "dynamo_optimize": lambda: callable(private_torch.dynamo_optimize),
    "register_bytecode_hook": lambda: parameters(private_torch.register_bytecode_hook) == ["hook"],
    "functorch_config": lambda: attributes("functorch_config", "enable_autograd_cache", "patch"),
    "make_boxed_func": lambda: private_torch.make_boxed_func(lambda x: x + 1)([2]) == 3,
    "inductor_config": lambda: attributes("inductor_config", "get_config_copy", "patch"),
    "cpp_builder": lambda: private_torch.cpp_builder.__name__.endswith("cpp_builder"),
    "cpu_vec_isa": lambda: attributes("cpu_vec_isa", "valid_vec_isa_list"),
    "list_mode_options": lambda: "triton.cudagraphs" in private_torch.list_mode_options("reduce-overhead"),
    "compile_fx": lambda: {"inner_compile", "config_patches"} <= set(parameters(private_torch.compile_fx)),
    "compile_fx_inner": lambda: callable(private_torch.compile_fx_inner),
    "GraphLowering": lambda: attributes("GraphLowering", "codegen", "codegen_with_cpp_wrapper", "compile_to_module"),
    "lowerings": lambda: torch.ops.aten.mm.default in private_torch.lowerings or len(private_torch.lowerings) > 100,
    "clear_caches": lambda: callable(private_torch.clear_caches),
    "inductor_cache_dir": lambda: "inductor" in private_torch.inductor_cache_dir(),
    "aoti_load_package": lambda: "path" in parameters(private_torch.aoti_load_package),
    "trace_structured": lambda: {"payload_fn", "expect_trace_id"} <= set(parameters(private_torch.trace_structured)),
}  # fmt: skip


@pytest.mark.parametrize("name", private_torch.NAMES)
def test_a_name_is_there_and_does_what_it_is_needed_for(name: str) -> None:
    assert RELIED_ON[name]()


def test_each_name_has_its_test() -> None:
    assert list(RELIED_ON) == list(private_torch.NAMES)


def test_a_name_that_is_gone_says_what_it_was_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(private_torch.NAMES, "gone", ("torch._C:_no_such_name", "a test"))
    with pytest.raises(
        AttributeError, match=r"has no torch\._C\._no_such_name .*which helpers needs for: a test"
    ):
        private_torch.gone  # noqa: B018


def private_uses(source: str) -> Iterator[str]:
    """Private names of torch's that this code imports or reaches by dots."""
    stands_for = {"torch": "torch", "dist": "torch.distributed", "nn": "torch.nn", "F": "torch.nn.functional"}
    for node in ast.walk(ast.parse(source)):
        found = []
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            found = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            found = [alias.name for alias in node.names if alias.name.partition(".")[0] == "torch"]
        elif isinstance(node, ast.Attribute):
            dots, below = [node.attr], node.value
            while isinstance(below, ast.Attribute):
                dots, below = [below.attr, *dots], below.value
            if isinstance(below, ast.Name) and below.id in stands_for:
                found = [".".join([stands_for[below.id], *dots])]
        for name in found:
            if re.search(r"\._[a-zA-Z]", name) and not OPERATORS.match(name):
                yield name


#: what `torch.compiler.reset` does, as it ran when it was recorded: the public name would make the recordings old
RECORDED = {"torch._dynamo", "torch._dynamo.reset"}


def test_private_names_stand_in_one_module() -> None:
    assert list(private_uses("import torch\nx = torch._C._get_schema\nfrom torch._inductor import config"))
    elsewhere = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in HELPERS
        if path.name != "private_torch.py"
        for name in private_uses(path.read_text(encoding="utf-8"))
        if path.name != "recorded.py" or name not in RECORDED
    }
    assert not elsewhere
