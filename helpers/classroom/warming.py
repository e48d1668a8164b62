"""What answers would import one by one, each for itself: imported before the process is forked that runs them."""

import contextlib
import importlib
import pkgutil

from helpers.compiling import torches

_PATTERNS = "torch._inductor.fx_passes.serialized_patterns"


def preload() -> None:
    """All that a first compilation loads. No operator runs, and no thread starts.

    :func:`helpers.compiling.torches.preload` knows what is loaded early on; here is what an answer of lesson 11 was seen
    to load after that, half a second of imports.
    """
    torches.preload()
    for name in _LOADED_LATE:
        with contextlib.suppress(ImportError):  # names come and go with torch's versions
            importlib.import_module(name)
    with contextlib.suppress(ImportError):
        patterns = importlib.import_module(_PATTERNS)
        for found in pkgutil.iter_modules(patterns.__path__, f"{_PATTERNS}."):
            importlib.import_module(found.name)


_LOADED_LATE = """
    sympy.combinatorics sympy.tensor.tensor torch._dynamo.backends.onnxrt torch._dynamo.backends.tensorrt
    torch._dynamo.backends.torchxla torch._dynamo.backends.tvm torch._dynamo.dce_extra_outputs
    torch._functorch._activation_checkpointing.remat_using_tags_for_fwd_loss_bwd_graph_pass
    torch._higher_order_ops.passes torch._inductor.bounds torch._inductor.codegen.cpp_wrapper_mps
    torch._inductor.codegen.cpu_device_op_overrides torch._inductor.codegen.cuda.device_op_overrides
    torch._inductor.codegen.mps_device_op_overrides torch._inductor.codegen.mtia.device_op_overrides
    torch._inductor.codegen.python_wrapper_mtia torch._inductor.codegen.segmented_tree
    torch._inductor.codegen.xpu.device_op_overrides torch._inductor.codegen.xpu.xpu_combined_scheduling
    torch._inductor.extern_node_serializer torch._inductor.fx_passes.apply_gumbel_max_trick
    torch._inductor.fx_passes.efficient_conv_bn_eval torch._subclasses.schema_check_mode
    torch.distributed.tensor.experimental torch.utils._cpp_embed_headers
""".split()
