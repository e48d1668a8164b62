"""What can be slow in the capstone's script: each fault as a change of the fast text, with its lesson and what it costs.

A student's copy has neither this module nor the fast text nor what makes a script of them (`given.KEPT_BACK`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One way to be slow.

    place: where it stands, and of those of one place a script has one at most. area: the exercise that repairs it.
    kind: of work. lesson: the course's that treats it. counter: the field of a Score that it raises, and `also` others as
    clearly. edits: (text of the fast script, which is the repair, and text in its place). imports: lines that the new text
    needs.
    """

    name: str
    place: str
    area: str
    kind: str
    lesson: str
    counter: str
    edits: tuple[tuple[str, str], ...]
    imports: tuple[str, ...] = ()
    also: tuple[str, ...] = ()


def _fault(
    name: str, place: str, kind: str, lesson: str, counter: str, *edits: tuple[str, str],
    imports: tuple[str, ...] = (), also: tuple[str, ...] = (),
) -> Fault:  # fmt: skip
    return Fault(name, place, PLACES[place], kind, lesson, counter, edits, imports, also)


#: every place, and the exercise that it belongs to
PLACES = {
    "read": "data", "width": "data", "workers": "data", "send": "data",
    "attention": "model", "activation": "model", "layout": "model", "cost": "model", "precision": "model",
    "augment": "model", "scale": "model",
    "pieces": "step", "backward": "step", "share": "step", "clip": "step", "optimizer": "step", "average": "step",
    "log": "run", "right": "run", "remember": "run", "validate": "run", "held": "run", "checkpoint": "run", "when": "run",
}  # fmt: skip

_READ = "    pictures = torch.from_numpy(files.read(rows))\n"
_FETCHED = "    return pictures, torch.from_numpy(files.labels[rows])\n"
_SENT = "        yield [tensor.to(gpu.device, non_blocking=True) for tensor in batch]\n"
_SHARED = """        flat = torch.cat([grad.flatten() for grad in grads]) / dist.get_world_size()
        dist.all_reduce(flat)
        parts = flat.split([grad.numel() for grad in grads])
        torch._foreach_copy_(grads, [part.view_as(grad) for part, grad in zip(parts, grads, strict=True)])
"""
_CLIPPED = "    return nn.utils.clip_grad_norm_(model.parameters(), most)\n"
_AVERAGED = "    torch._foreach_lerp_(list(averaged.parameters()), list(model.parameters()), 1 - decay)\n"
_LOGGED = """    record.waiting.append(torch.stack([loss, right, length]))
    if len(record.waiting) == LOG_EVERY:
        record.rows += torch.stack(record.waiting).tolist()
        record.waiting.clear()
"""
_RIGHT = "    return (logits.argmax(-1) == labels).sum()\n"
_REMEMBERED = "    record.guesses.append(logits.argmax(-1).to(torch.uint8))\n"
_AUGMENTED = "    return torch.where(mirrored[:, None, None, None], numbers.flip(-1), numbers)\n"
_VALIDATED = """        losses.append(forward(model, normalise(pictures), labels)[1])
    return torch.stack(losses).mean()
"""
_HOST = """    flat = torch.cat([p.detach().flatten() for p in module.parameters()])
    host = torch.empty(flat.shape, dtype=flat.dtype, pin_memory=flat.device.type != "cpu")
    return host.copy_(flat, non_blocking=True)
"""
_SAVED = """    if step % SAVE_EVERY == 0:
        record.saved = {"step": step, "model": to_host(model), "averaged": to_host(averaged)}
"""
_FORWARD = """    with torch.autocast(numbers.device.type, dtype=torch.bfloat16):
        logits = model(numbers)
        return logits, cost(logits, labels)
"""
_HEADS = "    return [part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in qkv.chunk(3, dim=-1)]\n"
_ATTENDED = "    return F.scaled_dot_product_attention(q, k, v)\n"

FAULTS: tuple[Fault, ...] = (
    # -------------------------------------------------------------------------------------------- 17.1, the data
    _fault(
        "a request a picture", "read", "data loading", "04", "read_s",
        (_READ, "    pictures = torch.stack([torch.from_numpy(files.read([row])[0]) for row in rows])\n"),
    ),
    _fault(
        "the whole file", "read", "data loading", "04", "read_s",
        (_READ, "    pictures = torch.from_numpy(files.read(range(len(files)))[rows])\n"),
    ),
    _fault(
        "float64 on the host", "width", "precision", "10", "copied_bytes",
        (_FETCHED, _FETCHED.replace("pictures,", "pictures.double(),")),
    ),
    _fault(
        "no workers", "workers", "data loading", "04", "stall_s",
        ('"num_workers": max(1, cores // 2), "prefetch_factor": 2, "pin_memory": pinned', '"num_workers": 0, "pin_memory": pinned'),
    ),
    _fault(
        "a blocking copy", "send", "syncs", "05", "syncs",
        (_SENT, "        yield [tensor.to(gpu.device) for tensor in batch]\n"),
    ),
    _fault(
        "memory that is not pinned", "send", "syncs", "05", "syncs",
        ("    pinned = gpu.device.type != \"cpu\"\n", ""),
        (', "pin_memory": pinned}', "}"),
    ),
    _fault(
        "sent one by one", "send", "launches", "05", "syncs",
        (_SENT, "        yield [torch.stack([row.to(gpu.device) for row in tensor]) for tensor in batch]\n"),
    ),
    # ------------------------------------------------------------------------------------------- 17.2, the model
    _fault(
        "attention by hand", "attention", "memory", "02", "saved_bytes",
        (_ATTENDED, "    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])\n    return torch.softmax(scores, dim=-1) @ v\n"),
        imports=("import math",),
    ),
    _fault(
        "head by head", "attention", "launches", "02", "launches_but_casts",
        (_ATTENDED, """    heads = [
        F.scaled_dot_product_attention(q[:, i : i + 1], k[:, i : i + 1], v[:, i : i + 1])
        for i in range(q.shape[1])
    ]
    return torch.cat(heads, dim=1)
"""),
    ),
    _fault(
        "attention runs twice", "attention", "checkpointing", "09", "busy_s",
        (_ATTENDED, "    return checkpoint(F.scaled_dot_product_attention, q, k, v, use_reentrant=False)\n"),
        imports=("from torch.utils.checkpoint import checkpoint",),
    ),
    _fault(
        "GELU by powers", "activation", "memory", "02", "saved_bytes",
        ('    return F.gelu(x, approximate="tanh")\n', """    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))
    return x * torch.sigmoid(2 * inner)
"""),
        imports=("import math",), also=("launches_but_casts",),
    ),
    _fault(
        "heads laid out anew", "layout", "layout", "01", "busy_s",
        (_HEADS, """    parts = qkv.chunk(3, dim=-1)
    return [part.unflatten(-1, (heads, -1)).transpose(1, 2).contiguous() for part in parts]
"""),
    ),
    _fault(
        "the loss by hand", "cost", "launches", "02", "busy_s",
        ("    return F.cross_entropy(logits, labels)\n", """    wanted = F.one_hot(labels, len(SHAPES)).float()
    shares = torch.softmax(logits.float(), dim=-1)
    return -(wanted * shares.log()).sum(-1).mean()
"""),
    ),
    _fault(
        "float32 throughout", "precision", "precision", "10", "busy_s",
        (_FORWARD, "    logits = model(numbers)\n    return logits, cost(logits, labels)\n"),
    ),
    _fault(
        "autocast too late", "precision", "precision", "10", "busy_s",
        (_FORWARD, """    logits = model(numbers)
    with torch.autocast(numbers.device.type, dtype=torch.bfloat16):
        return logits, cost(logits, labels)
"""),
    ),
    _fault(
        "picture by picture", "augment", "compilation", "11", "compilations",
        (_AUGMENTED, """    turned = [
        picture.flip(-1) if turn else picture
        for picture, turn in zip(numbers, mirrored.tolist(), strict=True)
    ]
    return torch.stack(turned)
"""),
    ),
    _fault(
        "a question to the data", "augment", "compilation", "11", "compilations",
        (_AUGMENTED, "    if mirrored.any():\n    " + _AUGMENTED + "    return numbers\n"),
    ),
    _fault(
        "rows of a mask", "augment", "compilation", "11", "compilations",
        (_AUGMENTED, """    numbers[mirrored] = numbers[mirrored].flip(-1)
    return numbers
"""),
    ),
    _fault(
        "constants sent each time", "scale", "syncs", "03", "syncs",
        ("    return pictures.float() / 127.5 - 1\n", """    middle = torch.full((3, 1, 1), 127.5).to(pictures.device)
    return (pictures.float() - middle) / middle
"""),
    ),
    # -------------------------------------------------------------------------------------------- 17.3, the step
    _fault(
        "rows by a list", "pieces", "syncs", "03", "syncs",
        ("    yield from zip(*(tensor.chunk(parts) for tensor in batch), strict=True)\n", """    count = len(batch[0])
    size = -(-count // parts)
    for start in range(0, count, size):
        rows = list(range(start, min(start + size, count)))
        yield tuple(tensor[rows] for tensor in batch)
"""),
    ),
    _fault(
        "one backward pass for all parts", "backward", "memory", "09", "peak_bytes",
        ("        (loss / parts).backward()\n        kept.append(logits.detach())\n        losses.append(loss.detach())\n",
         "        kept.append(logits.detach())\n        losses.append(loss / parts)\n"),
        ("    share(model)\n    return torch.cat(kept), torch.stack(losses).mean()\n",
         "    total = torch.stack(losses).sum()\n    total.backward()\n    share(model)\n    return torch.cat(kept), total.detach()\n"),
    ),
    _fault(
        "an all-reduce a tensor", "share", "communication", "14", "collectives",
        (_SHARED, """        for grad in grads:
            dist.all_reduce(grad)
            grad.div_(dist.get_world_size())
"""),
    ),
    _fault(
        "gathered and averaged", "share", "communication", "14", "collectives",
        (_SHARED, """        for grad in grads:
            others = [torch.empty_like(grad) for _ in range(dist.get_world_size())]
            dist.all_gather(others, grad)
            grad.copy_(torch.stack(others).mean(0))
"""),
    ),
    _fault(
        "lengths read one by one", "clip", "syncs", "03", "syncs",
        (_CLIPPED, """    grads = [p.grad for p in model.parameters() if p.grad is not None]
    length = math.sqrt(sum(grad.norm().item() ** 2 for grad in grads))
    scale = min(1.0, most / (length + 1e-6))
    for grad in grads:
        grad.mul_(scale)
    return torch.tensor(length, device=grads[0].device)
"""),
        imports=("import math",),
    ),
    _fault(
        "AdamW in a loop", "optimizer", "launches", "06", "launches_but_casts",
        ("lr=2e-3, fused=True)", "lr=2e-3, foreach=False)"),
    ),
    _fault(
        "averages in a new state", "average", "launches", "06", "launches_but_casts",
        (_AVERAGED, """    now, kept = model.state_dict(), averaged.state_dict()
    averaged.load_state_dict({name: decay * kept[name] + (1 - decay) * now[name] for name in kept})
"""),
    ),
    # --------------------------------------------------------------------------------------------- 17.4, the run
    _fault(
        "numbers read at each step", "log", "logging", "03", "syncs",
        (_LOGGED, "    record.rows.append([float(loss), float(right), float(length)])\n"),
    ),
    _fault(
        "counted in Python", "right", "host code", "03", "syncs",
        (_RIGHT, """    pairs = zip(logits.argmax(-1).tolist(), labels.tolist(), strict=True)
    return torch.tensor(sum(guess == label for guess, label in pairs), device=logits.device)
"""),
    ),
    _fault(
        "logits kept", "remember", "memory", "08", "growth_bytes",
        (_REMEMBERED, "    record.guesses.append(logits.clone().float())\n"),
    ),
    _fault(
        "a graph until it is read", "validate", "memory", "02", "saved_bytes",
        ("@torch.no_grad()\ndef validate(", "def validate("),
        (_VALIDATED, """        losses.append(forward(model, normalise(pictures), labels)[1].item())
    return sum(losses) / len(losses)
"""),
    ),
    _fault(
        "held-out pictures sent each time", "held", "memory", "04", "copied_bytes",
        ("    return [[tensor.to(gpu.device) for tensor in fetch(files, batch)] for batch in batches]\n",
         "    return [list(fetch(files, batch)) for batch in batches]\n"),
    ),
    _fault(
        "weights copied one by one", "checkpoint", "checkpointing", "05", "syncs",
        (_HOST, "    return torch.cat([p.detach().flatten().cpu() for p in module.parameters()])\n"),
    ),
    _fault(
        "a checkpoint at each step", "when", "checkpointing", "08", "copied_bytes",
        (_SAVED, """    kept = {"step": step, "model": to_host(model), "averaged": to_host(averaged)}
    if step % SAVE_EVERY == 0:
        record.saved = kept
"""),
    ),
)  # fmt: skip
