"""What a call of torch.distributed is: the one table of the dispatcher's operators, and the payload of each kind.

To teach the course a new collective, add its operators here, its cost to :mod:`helpers.ranks.costs`, and, if it
has values on the simulated GPU, how they come about to :mod:`helpers.simulator`.
"""

from typing import Any

#: kind → the operators of c10d and _c10d_functional that are of this kind (less a last underscore), and the methods
#: of a Backend. Names in common (reduce, send, …) are listed once.
_OPERATORS = {
    "all_reduce": "allreduce allreduce_coalesced all_reduce all_reduce_coalesced",
    "all_gather": """allgather _allgather_base allgather_coalesced allgather_into_tensor_coalesced all_gather_single
        all_gather_single_coalesced all_gather_into_tensor all_gather_into_tensor_coalesced all_gather_into_tensor_out""",
    "reduce_scatter": """reduce_scatter _reduce_scatter_base reduce_scatter_tensor_coalesced reduce_scatter_single
        reduce_scatter_single_coalesced reduce_scatter_tensor reduce_scatter_tensor_out""",
    "all_to_all": "alltoall alltoall_base all_to_all_single",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send",
    "recv": "recv recv_any_source recv_anysource",
    "barrier": "barrier monitored_barrier",
}
_KIND_OF = {operator: kind for kind, operators in _OPERATORS.items() for operator in operators.split()}
#: what the arguments are called that an operator reads, and that it fills, where these are not the same "tensors"
_INPUTS = ("input", "inputs", "input_tensor", "input_tensors", "input_list")
_OUTPUTS = ("output", "outputs", "output_tensor", "output_tensors", "output_lists", "out")

#: names that operators or methods of a Backend may have
NAMES = tuple(_KIND_OF)


def kind_of(operator: str) -> str | None:
    """ "all_reduce" for "allreduce_", and so on; ``None`` for an operator that sends nothing."""
    return _KIND_OF.get(operator.rstrip("_"))


def sides(given: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Of a call's arguments by name: those that it reads and those that it fills; one that does both is "tensors"."""
    if "tensors" in given:
        return [given["tensors"]], [given["tensors"]]
    return [given[n] for n in _INPUTS if n in given], [given[n] for n in _OUTPUTS if n in given]


def payload(kind: str, read: int, filled: int, ranks: int) -> int:
    """Bytes as nccl-tests counts them (doc/PERFORMANCE.md), from those that this rank reads and fills: of a gather the
    whole result, of a scatter the whole input, of the rest what one rank gives, of an all-gather what it gets."""
    if kind == "barrier":
        return 0
    if kind == "all_gather":
        return filled
    if kind == "gather":
        return ranks * read
    if kind == "scatter":
        return ranks * filled
    return read or filled
