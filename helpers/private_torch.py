"""Every private name of PyTorch that the course relies on, looked up here and nowhere else.

    private_torch.current_autograd_node()                     # the thing itself, imported at its first use
    mock.patch.object(*private_torch.place("verify_shapes"), lambda *_: None)    # (owner, its attribute's name)

A name that a version of PyTorch no longer has fails here, with that version and what the name was for, and
tests/test_private_torch.py says for each what of it is relied on, and passes with torch 2.11.0, 2.13.0 and 2.14.1: all
names are in each of them. One that comes later or goes says so in `since` and `until`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Name:
    """at: "module:attribute", dots inside a class. why: what it is needed for.

    since: the first version that has it, as far as tested. until: the first that no longer has it.
    """

    at: str
    why: str
    since: tuple[int, int] = (2, 11)
    until: tuple[int, int] = (99, 0)


_C, _MODES, _C10D = "torch._C", "torch.utils._python_dispatch", "torch._C._distributed_c10d"
_DDP = "torch.nn.parallel.distributed"

NAMES = {
    # dispatch: modes, keys, and whether an operator has a kernel
    "TorchDispatchMode": Name(f"{_MODES}:TorchDispatchMode", "sees every operator"),
    "disable_current_modes": Name(f"{_MODES}:_disable_current_modes", "work that nobody is to see"),
    "modes_on": Name(f"{_C}:_len_torch_dispatch_stack", "how many modes are on"),
    "disabled_dispatch": Name(f"{_C}:_disabled_torch_dispatch_impl", "a Tensor subclass without dispatch"),
    "DisableTorchFunction": Name(f"{_C}:DisableTorchFunction", "Tensor's methods as they are"),
    "DisableAutocast": Name(f"{_C}:_DisableAutocast", "no autocast inside a kernel"),
    "DispatchKey": Name(f"{_C}:DispatchKey", "which kernel an operator is sent to"),
    "DispatchKeySet": Name(f"{_C}:DispatchKeySet", "the same, for redispatch"),
    "ExcludeDispatchKeyGuard": Name(f"{_C}:_ExcludeDispatchKeyGuard", "autocast's key left out"),
    "exclude_key": Name(f"{_C}:_dispatch_tls_set_dispatch_key_excluded", "autocast's key left out"),
    "include_key": Name(f"{_C}:_dispatch_tls_set_dispatch_key_included", "autocast's key put in"),
    "keys_behind": Name(f"{_C}:_dispatch_keyset_full_after", "an operator again, below a kernel in front"),
    "has_kernel": Name(f"{_C}:_dispatch_has_kernel_for_dispatch_key", "operators with a kernel of their own"),
    "runs_on": Name(f"{_C}:_dispatch_has_computed_kernel_for_dispatch_key", "… or with a composite one"),
    "operator_names": Name(f"{_C}:_dispatch_get_all_op_names", "the operators of c10d"),
    "schema": Name(f"{_C}:_get_schema", "what the arguments of an operator are called"),
    "C": Name("torch:_C", "it has torch.to_dlpack too"),
    "ScriptObject": Name(f"{_C}:ScriptObject", "process groups and works inside the dispatcher"),
    "hidden_from_dynamo": Name("torch:_disable_dynamo", "a mode that Dynamo does not trace"),
    "fx_config": Name("torch.fx.experimental:_config", "meta tensors in nonzero"),
    "parse_to": Name(f"{_C}._nn:_parse_to", "what tensor.to(…) was asked for"),
    "write_file": Name("torch:UntypedStorage._write_file", "a save is a sync"),
    "tree_leaves": Name("torch.utils._pytree:tree_leaves", "tensors in nested arguments"),
    "tree_map_only": Name("torch.utils._pytree:tree_map_only", "tensors in nested arguments"),
    "FakeTensorMode": Name("torch._subclasses.fake_tensor:FakeTensorMode", "shapes without memory"),
    # autograd
    "current_autograd_node": Name(f"{_C}:_current_autograd_node", "which node of backward runs"),
    "current_graph_task": Name(f"{_C}:_current_graph_task_id", "which backward runs"),
    "sequence_number": Name(f"{_C}._autograd:_get_sequence_nr", "forward's operators, matched to backward's"),
    "saved_tensors_hooks": Name(f"{_C}:_autograd", "hooks of others stand aside"),
    "run_backward": Name("torch.autograd.graph:_engine_run_backward", "when backward begins and ends"),
    # what optimizers, autocast and checkpoint ask
    "optimizer_reads": Name("torch.optim.optimizer:_get_value", "a sync that an optimizer makes"),
    "infer_device_type": Name("torch.utils.checkpoint:_infer_device_type", "checkpoint on a meta device"),
    "DataLoaderIterator": Name("torch.utils.data.dataloader:_BaseDataLoaderIter", "pinning on a simulated GPU"),
    "data_utils": Name("torch.utils.data:_utils", "pages pinned as a DataLoader does"),
    "worker": Name("torch.utils.data._utils:worker", "get_worker_info() in a process that is none"),
    # torch.distributed
    "Backend": Name(f"{_C10D}:Backend", "calls that pass the dispatcher by"),
    "ProcessGroup": Name(f"{_C10D}:ProcessGroup", "the group of a call"),
    "Work": Name(f"{_C10D}:Work", "who waits for a call"),
    "Future": Name(f"{_C}:Future", "who waits for a call, by its future"),
    "collect_all": Name(f"{_C}:_collect_all", "who waits for many futures"),
    "FakeStore": Name("torch.testing._internal.distributed.fake_pg:FakeStore", "a group with nobody else in it"),
    "AsyncCollectiveTensor": Name(
        "torch.distributed._functional_collectives:AsyncCollectiveTensor", "a result that waits for itself"
    ),
    "resolve_group": Name("torch.distributed.distributed_c10d:_resolve_process_group", "groups by their names"),
    "verify_shapes": Name(f"{_DDP}:_verify_param_shape_across_processes", "DDP asks ranks that are not there"),
    "has_hooks": Name("torch.distributed:ProcessGroup._has_hooks", "a group whose backends are told by device"),
    # the compiler
    "dynamo_config": Name("torch._dynamo:config", "after how many recompilations it gives up"),
    "functorch_config": Name("torch._functorch:config", "no cache of autograd's graphs"),
    "make_boxed_func": Name("torch._functorch.aot_autograd:make_boxed_func", "a compiled part that runs on ATen"),
    "inductor_config": Name("torch._inductor:config", "code that can be read"),
    "cpp_builder": Name("torch._inductor:cpp_builder", "which C++ compiler is there"),
    "cpu_vec_isa": Name("torch._inductor:cpu_vec_isa", "which vector instructions are there"),
    "list_mode_options": Name("torch._inductor:list_mode_options", "what mode=… means"),
    "compile_fx": Name("torch._inductor.compile_fx:compile_fx", "Inductor, as a backend"),
    "compile_fx_inner": Name("torch._inductor.compile_fx:compile_fx_inner", "one graph of it"),
    "GraphLowering": Name("torch._inductor.graph:GraphLowering", "code that is written and not built"),
    "lowerings": Name("torch._inductor.lowering:lowerings", "whose code writes an operator"),
    "clear_caches": Name("torch._inductor.utils:clear_caches", "compile times without a cache"),
    "trace_structured": Name("torch._logging:trace_structured", "what the compiler says it did"),
}  # fmt: skip


def place(name: str) -> tuple[Any, str]:
    """Who holds it, and under what name: for :func:`unittest.mock.patch.object`. AttributeError as for a look-up."""
    module, _, path = NAMES[name].at.partition(":")
    *above, last = path.split(".")
    try:
        owner = importlib.import_module(module)
        for part in above:
            owner = getattr(owner, part)
        if not hasattr(owner, last):  # a submodule that nobody has imported yet
            importlib.import_module(f"{module}.{path}")
    except (ImportError, AttributeError) as problem:
        raise AttributeError(
            f"torch {torch.__version__} has no {NAMES[name].at.replace(':', '.')} ({problem}), which helpers needs for: "
            f"{NAMES[name].why}. helpers/private_torch.py is the place to mend it"
        ) from problem
    return owner, last


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(*place(name))
