"""Dynamo's tree of guards, as a flat list of conditions that read."""

import json
import re
from collections.abc import Iterator

from .records import Guard

#: +- TENSOR_MATCH: check_tensor(L['x'], …)  # y = x * 2  # model.py:3 in f
_LEAF = re.compile(r"\+- (?P<kind>[A-Z_]+): (?P<check>.*)$")
_SAID = re.compile(r"\s+# (?P<line>.*?)\s+# \S+:\d+ in \S+( \(.*\)?)?$")
_TENSOR = re.compile(
    r"check_tensor\((?P<about>.+?), (?P<type>\w+), DispatchKeySet\((?P<keys>.*?)\), (?P<dtype>torch\.\w+), "
    r"device=(?P<device>\w+), requires_grad=(?P<grad>\w+), size=\[(?P<size>.*?)\], stride=\[(?P<stride>.*?)\]\)"
)
_SAME = re.compile(r"___check_obj_id\((?P<about>.+), \d+\)")
_TYPE = re.compile(r"___check_type_id\((?P<about>.+), \d+\)")

#: what Dynamo itself attaches to every tensor it sees (five a tensor), and its own workings
_SILENT = {"DIMENSION_DYNAMIC_MARKING_GUARD", "NO_TENSOR_ALIASING"}
_MARKS = re.compile(r"'_dynamo_(weak_|strict_)?(dynamic|unbacked|static)\w*'|top_saved_tensors_hooks")


def guards(text: str) -> Iterator[Guard]:
    """The leaves of the tree that Dynamo prints (``dynamo_cpp_guards_str``), without its own marks on tensors.

    First those on arguments and what hangs on them, then on globals, on torch's own modules, on the global state.
    """
    yield from (guard for _, guard in sorted(_leaves(text), key=lambda leaf: leaf[0]))


def _leaves(text: str) -> Iterator[tuple[int, Guard]]:
    for row in text.splitlines():
        leaf = _LEAF.search(row)
        if not leaf or leaf["kind"] in _SILENT or _MARKS.search(leaf["check"]):
            continue
        kind, check = leaf["kind"], leaf["check"]
        match = _SAID.search(check)
        line = match["line"] if match else ""
        check = check[: match.start()] if match else re.sub(r"\s+# \S+:\d+ in \S+$", "", check)
        guard = _guard(kind, check.strip(), line)
        torch_own = re.search(r"\bG\['(__import_|__builtins|torch'\])", check)
        yield 3 if not guard.about else 2 if torch_own else 1 if "G['" in check else 0, guard


def _guard(kind: str, check: str, line: str) -> Guard:
    if kind == "GLOBAL_STATE":
        return Guard(kind, "", _state(check))
    if kind == "TORCH_FUNCTION_MODE_STACK":
        return Guard(kind, "", "the same torch function modes are on")
    if kind == "DEFAULT_DEVICE":
        return Guard(kind, "", "the same default device")
    check = re.sub(r", type=<.*?>$", "", check)
    if tensor := _TENSOR.search(check):
        # a device of None is the CPU's: it has no index
        device = "cpu" if tensor["device"] == "None" else f"{_device(tensor['keys'])}:{tensor['device']}"
        says = f"{tensor['type']}, {tensor['dtype']}, {device}, requires_grad={tensor['grad']}, "
        # None: any number will do
        says += f"size [{tensor['size']}], stride [{tensor['stride']}]".replace("None", "any")
        return Guard(kind, plain(tensor["about"]), says, line)
    if same := _SAME.search(check):
        return Guard(kind, plain(same["about"]), "the same object", line)
    if kind_of := _TYPE.search(check):
        return Guard(kind, plain(kind_of["about"]), "the same type", line)
    about = re.search(r"\b[LG]\[", check)
    name = plain(_subject(check[about.start() :])) if about else ""
    return Guard(kind, name, plain(check), line)


def _device(keys: str) -> str:
    return keys.split(",")[0].strip().lower()


def _subject(text: str) -> str:
    match = re.match(r"[LG](\['[^']+'\])(\.\w+|\['[^']+'\]|\[\d+\])*", text)
    # x.size()[0]: about x
    return re.sub(r"\.(size|stride|shape|storage_offset)$", "", match[0]) if match else text


def plain(text: str) -> str:
    """``L['x'].size()[0]`` → ``x.size()[0]``; ``G['torch'].relu`` → ``torch.relu``."""
    text = re.sub(r"\b[LG]\['(\w+)'\]", r"\1", text)
    text = re.sub(r"\b__import_(\w+)", lambda found: found[1].replace("_dot_", "."), text)
    text = re.sub(r"___stack\d+", "(value at the break)", text)
    # modules keep their parts in dictionaries
    text = re.sub(r"\.__dict__\['(?:_modules|_parameters|_buffers)'\]\['(\w+)'\]", r".\1", text)
    text = re.sub(r"\._(?:modules|parameters|buffers)\['(\w+)'\]", r".\1", text)
    text = re.sub(r"\.__dict__\['(\w+)'\]", r".\1", text)
    text = re.sub(r"not ___dict_contains\(('\w+'), (.*)\)", r"\1 not in \2", text)
    text = re.sub(r"___dict_contains\(('\w+'), (.*)\)", r"\1 in \2", text)
    return re.sub(r"__builtins_dict___\d+\['(\w+)'\]", r"\1", text)


def _state(check: str) -> str:
    match = re.search(r"\{.*\}", check)
    if not match:
        return "the same global state (grad mode, autocast, threads, default dtype, determinism)"
    state = json.loads(match[0])
    grad, exact = _on(state.get("grad_mode")), _on(state.get("deterministic_algorithms"))
    autocast = _on(any(state.get("autocast_state", {}).get("enabled", [])))
    threads = "1 thread" if state.get("num_threads") == 1 else f"{state.get('num_threads')} threads"
    modes = f"grad mode {grad}, autocast {autocast}, {threads}, deterministic algorithms {exact}"
    return f"{modes}, the same default dtype"


def _on(flag: object) -> str:
    return "on" if flag else "off"
