"""The allocator's state in the form of torch.cuda.memory._snapshot (torch/csrc/cuda/Module.cpp)."""

from __future__ import annotations

from typing import Any

from helpers.simulator.allocator.blocks import Block
from helpers.simulator.allocator.conf import UNLIMITED, Conf
from helpers.simulator.allocator.core import Core
from helpers.simulator.allocator.record import frames_of

__all__ = ["segments", "settings"]


def segments(core: Core) -> list[dict[str, Any]]:
    """One entry a segment (of an expandable one: a mapped stretch), by address."""
    everything = [block for free in core._lists() for block in free] + list(core.active.values())
    heads = [b for b in everything if b.prev is None or not b.prev.mapped]
    return [_segment(head) for head in sorted(heads, key=lambda b: b.address)]


def _segment(head: Block) -> dict[str, Any]:
    blocks, block = [], head
    while True:
        in_use = block.allocated or block.events > 0 or bool(block.uses)
        state = "active_allocated" if block.allocated else "active_pending_free" if in_use else "inactive"
        blocks.append(
            {
                "address": block.address,
                "size": block.size,
                "requested_size": block.requested,
                "state": state,
                "frames": frames_of(block.frames),
            }
        )
        if block.next is None or not block.next.mapped:
            break
        block = block.next
    active = [b for b in blocks if b["state"] != "inactive"]
    return {
        "device": 0,
        "address": head.address,
        "total_size": sum(b["size"] for b in blocks),
        "allocated_size": sum(b["size"] for b in blocks if b["state"] == "active_allocated"),
        "active_size": sum(b["size"] for b in active),
        "requested_size": sum(b["requested_size"] for b in active),
        "stream": head.stream,
        "segment_type": "small" if head.pool.small else "large",
        "segment_pool_id": head.pool.owner,
        "is_expandable": head.expandable is not None,
        "frames": frames_of(head.segment_frames),
        "blocks": blocks,
    }


def settings(conf: Conf) -> dict[str, Any]:
    """The snapshot's allocator_settings."""
    return {
        "PYTORCH_CUDA_ALLOC_CONF": conf.text,
        "max_split_size": -1 if conf.max_split_size == UNLIMITED else conf.max_split_size,
        "garbage_collection_threshold": conf.garbage_collection_threshold,
        "expandable_segments": conf.expandable_segments,
        "pinned_num_register_threads": 1,
        "release_lock_on_cudamalloc": False,
        "pinned_use_cuda_host_register": False,
        "graph_capture_record_stream_reuse": False,
        "roundup_power2_divisions": {str(1 << i): n for i, n in enumerate(conf.roundup)},
    }
