"""The caching allocator's model: the table of cases, the options, replays, and the simulated GPU's memory."""

from __future__ import annotations

import gc
import pickle
import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch

from helpers.simulator import RealGPU, SimGPU, SimulationError, simulate
from helpers.simulator.allocator import CachingAllocator, OutOfMemory, parse
from helpers.simulator.memory import MemoryNames
from helpers.text.sizes import size_as_torch

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def figures(allocator: CachingAllocator) -> tuple[int, int]:
    stats = allocator.stats()
    return stats["allocated_bytes.all.current"], stats["reserved_bytes.all.current"]


def blocks(segments: list[dict[str, Any]]) -> list[tuple[int, int, str]]:
    return [(b["address"], b["size"], b["state"]) for s in segments for b in s["blocks"]]


# ------------------------------------------------------------------------------------ the table

# Worked out by hand from round_size, get_allocation_size and should_split in CUDACachingAllocator.cpp.
CASES = [
    # asked, allocated, reserved
    (0, 0, 0),
    (1, 512, 2 * MIB),
    (512, 512, 2 * MIB),
    (513, 1024, 2 * MIB),
    (MIB, MIB, 2 * MIB),  # the largest of the small pool
    (MIB + 1, MIB + 512, 20 * MIB),
    (10 * MIB - 1, 10 * MIB, 10 * MIB),  # rounded up to 512 first: 10 MiB, and so a segment of its own
    (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
    (10 * MIB, 10 * MIB, 10 * MIB),
    (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
    (11 * MIB, 12 * MIB, 12 * MIB),  # 1 MiB would be left over: not cut off
    (11 * MIB - 512, 11 * MIB - 512, 12 * MIB),
    (1000 * MIB, 1000 * MIB, 1000 * MIB),
]


@pytest.mark.parametrize(("asked", "allocated", "reserved"), CASES)
def test_the_first_allocation_of_each_size(asked: int, allocated: int, reserved: int) -> None:
    allocator = CachingAllocator(8 * GIB)
    address = allocator.malloc(asked)
    assert figures(allocator) == (allocated, reserved)
    allocator.free(address)
    assert figures(allocator) == (0, reserved)
    allocator.empty_cache()
    assert figures(allocator) == (0, 0)
    assert allocator.driver.free == 8 * GIB


def test_the_small_pool_packs_into_two_mebibytes_and_the_large_one_into_twenty() -> None:
    allocator = CachingAllocator(8 * GIB)
    small = [allocator.malloc(512 * KIB) for _ in range(5)]
    assert figures(allocator)[1] == 4 * MIB
    assert [b - a for a, b in pairwise(small[:4])] == [512 * KIB] * 3
    allocator.malloc(8 * MIB)
    allocator.malloc(8 * MIB)
    assert figures(allocator)[1] == 24 * MIB
    allocator.malloc(8 * MIB)  # 4 MiB are left: a new segment
    assert figures(allocator)[1] == 44 * MIB


def test_best_fit_takes_the_smallest_block_that_fits_and_the_lowest_address_of_equals() -> None:
    allocator = CachingAllocator(8 * GIB)
    sizes = (40, 20, 30, 20)
    where = [allocator.malloc(n * MIB) for n in sizes]
    for address in where:
        allocator.free(address)
    assert allocator.malloc(15 * MIB) == where[1]
    assert allocator.malloc(15 * MIB) == where[3]
    assert allocator.malloc(25 * MIB) == where[2]


def test_a_remainder_of_one_mebibyte_stays_and_a_larger_one_is_cut_off() -> None:
    for left, block in ((MIB, 20 * MIB), (MIB + 512, 19 * MIB - 512)):
        allocator = CachingAllocator(8 * GIB)
        allocator.free(allocator.malloc(20 * MIB))
        allocator.malloc(20 * MIB - left)
        assert allocator.stats()["allocated_bytes.all.current"] == block
        assert allocator.stats()["requested_bytes.all.current"] == 20 * MIB - left


def test_freed_neighbours_merge_and_split_segments_stay() -> None:
    allocator = CachingAllocator(8 * GIB)
    a, b, c = (allocator.malloc(5 * MIB) for _ in range(3))
    allocator.free(a)
    allocator.free(c)
    stats = allocator.stats()
    assert stats["inactive_split.all.current"] == 2
    assert stats["inactive_split_bytes.all.current"] == 15 * MIB
    allocator.empty_cache()
    assert figures(allocator) == (5 * MIB, 20 * MIB)  # b holds the segment
    allocator.free(b)
    assert blocks(allocator.segments()) == [(a, 20 * MIB, "inactive")]
    assert allocator.stats()["inactive_split.all.current"] == 0
    allocator.empty_cache()
    assert figures(allocator) == (0, 0)


def test_freeing_twice_is_an_error_and_nothing_is_nothing() -> None:
    allocator = CachingAllocator(GIB)
    address = allocator.malloc(1)
    allocator.free(address)
    with pytest.raises(ValueError, match="invalid device pointer"):
        allocator.free(address)
    allocator.free(0)


def test_peaks_and_totals_are_kept_and_reset() -> None:
    allocator = CachingAllocator(GIB)
    for _ in range(3):
        allocator.free(allocator.malloc(5 * MIB))
    stats = allocator.stats()
    assert [stats[f"allocated_bytes.all.{m}"] for m in ("current", "peak", "allocated", "freed")] == [
        *(0, 5 * MIB, 15 * MIB, 15 * MIB)
    ]
    assert stats["allocation.large_pool.allocated"] == 3
    assert stats["allocation.small_pool.allocated"] == 0
    assert stats["num_device_alloc"] == 1
    allocator.reset_peak_stats()
    stats = allocator.stats()
    assert stats["allocated_bytes.all.peak"] == 0
    assert stats["reserved_bytes.all.peak"] == 20 * MIB


# ------------------------------------------------------------------------------------ streams and pools


def test_a_cached_block_serves_only_the_stream_it_was_allocated_on() -> None:
    allocator = CachingAllocator(GIB)
    address = allocator.malloc(5 * MIB, stream=0)
    allocator.free(address)
    assert allocator.malloc(5 * MIB, stream=1) != address
    assert figures(allocator)[1] == 40 * MIB
    assert allocator.malloc(5 * MIB, stream=0) == address


def test_record_stream_defers_reuse_until_the_other_stream_is_done() -> None:
    allocator = CachingAllocator(GIB)
    address = allocator.malloc(20 * MIB)
    allocator.record_stream(address, 0)  # its own stream: nothing to wait for
    allocator.record_stream(address, 7)
    allocator.free(address)
    stats = allocator.stats()
    assert (stats["allocated_bytes.all.current"], stats["active_bytes.all.current"]) == (0, 20 * MIB)
    assert blocks(allocator.segments()) == [(address, 20 * MIB, "active_pending_free")]
    assert allocator.malloc(20 * MIB) != address
    allocator.finish(7)
    assert allocator.malloc(20 * MIB) == address
    assert [e["action"] for e in allocator.events].count("free_completed") == 1


def test_empty_cache_waits_for_other_streams() -> None:
    allocator = CachingAllocator(GIB)
    address = allocator.malloc(20 * MIB)
    allocator.record_stream(address, 7)
    allocator.free(address)
    allocator.empty_cache()
    assert figures(allocator) == (0, 0)
    assert allocator.stats()["num_sync_all_streams"] == 1


def test_a_private_pool_keeps_its_memory_until_its_graphs_are_gone() -> None:
    allocator = CachingAllocator(GIB)
    ordinary = allocator.malloc(5 * MIB)
    allocator.free(ordinary)
    allocator.begin_pool((1, 0), lambda stream: stream == 3)
    inside = allocator.malloc(5 * MIB, stream=3)
    assert allocator.malloc(5 * MIB, stream=0) == ordinary
    with pytest.raises(ValueError, match="already recording"):
        allocator.begin_pool((1, 0))
    allocator.end_pool((1, 0))
    allocator.free(inside)
    assert allocator.malloc(5 * MIB, stream=3) != inside
    assert {s["segment_pool_id"] for s in allocator.segments()} == {(0, 0), (1, 0)}
    allocator.empty_cache()
    assert figures(allocator)[1] == 60 * MIB
    allocator.release_pool((1, 0))
    allocator.empty_cache()
    assert figures(allocator)[1] == 40 * MIB
    assert not allocator.reserved.private


def test_frees_of_blocks_used_elsewhere_wait_for_the_end_of_a_capture() -> None:
    allocator = CachingAllocator(GIB)
    allocator.begin_pool((1, 0))
    address = allocator.malloc(20 * MIB)
    allocator.record_stream(address, 5)
    allocator.free(address)
    assert allocator.malloc(20 * MIB) != address
    allocator.end_pool((1, 0))
    allocator.malloc(1)  # processes what was deferred; the use was inside the capture, and is over with it
    allocator.begin_pool((1, 0))
    assert allocator.malloc(20 * MIB) == address


# ------------------------------------------------------------------------------------ failure


def test_a_failing_cudamalloc_gives_cached_segments_back_and_tries_again() -> None:
    allocator = CachingAllocator(100 * MIB)
    keep = allocator.malloc(30 * MIB)
    allocator.free(allocator.malloc(60 * MIB))
    allocator.malloc(70 * MIB)
    stats = allocator.stats()
    assert stats["num_alloc_retries"] == 1
    assert stats["num_ooms"] == 0
    assert figures(allocator) == (100 * MIB, 100 * MIB)
    actions = [e["action"] for e in allocator.events[-3:]]
    assert actions == ["segment_free", "segment_alloc", "alloc"]
    allocator.free(keep)


def test_out_of_memory_says_what_pytorch_says() -> None:
    allocator = CachingAllocator(GIB, context_bytes=100 * MIB)
    a, b = allocator.malloc(400 * MIB), allocator.malloc(5 * MIB)
    allocator.free(a)
    allocator.malloc(300 * MIB)
    with pytest.raises(OutOfMemory) as caught:
        allocator.malloc(600 * MIB + 1)
    assert str(caught.value) == (
        "CUDA out of memory. Tried to allocate 602.00 MiB. GPU 0 has a total capacity of 1024.00 MiB of which "
        "504.00 MiB is free. Including non-PyTorch memory, this process has 520.00 MiB memory in use. "
        "Of the allocated memory 305.00 MiB is allocated by PyTorch, and 115.00 MiB is reserved by PyTorch but "
        "unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for "
        "Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html"
        "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
    )
    assert (caught.value.tried, caught.value.free) == (602 * MIB, 504 * MIB)
    assert allocator.events[-1]["action"] == "oom"
    assert allocator.events[-1]["device_free"] == 504 * MIB
    assert allocator.stats()["num_ooms"] == 1
    allocator.free(b)  # the allocator goes on working
    allocator.malloc(500 * MIB)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (1024, "1024 bytes"), (1025, "1.00 KiB"), (MIB, "1024.00 KiB"), (20 * MIB, "20.00 MiB"),
        (GIB, "1024.00 MiB"), (3 * GIB // 2, "1.50 GiB"),
    ],
)  # fmt: skip
def test_sizes_are_written_as_pytorch_writes_them(size: int, text: str) -> None:
    assert size_as_torch(size) == text


def test_a_memory_fraction_limits_before_the_device_does_and_is_no_reservation() -> None:
    allocator = CachingAllocator(GIB)
    allocator.set_memory_fraction(0.5)
    assert figures(allocator) == (0, 0)
    allocator.malloc(512 * MIB)
    with pytest.raises(OutOfMemory, match=r"512.00 MiB allowed; Of the allocated"):
        allocator.malloc(1)
    allocator.set_memory_fraction(1.0)
    allocator.malloc(1)
    with pytest.raises(ValueError, match="Allowed range: 0~1"):
        allocator.set_memory_fraction(1.5)


# ------------------------------------------------------------------------------------ options


def fragment(allocator: CachingAllocator) -> None:
    """A large tensor comes and goes, small ones that stay move into its place, and it comes again."""
    allocator.free(allocator.malloc(640 * MIB))
    for _ in range(3):
        allocator.malloc(64 * MIB)
    allocator.malloc(640 * MIB)


def test_fragmentation_fails_what_max_split_size_and_expandable_segments_let_through() -> None:
    with pytest.raises(OutOfMemory) as caught:
        fragment(CachingAllocator(GIB))
    assert caught.value.total - caught.value.allocated > 640 * MIB  # there was room enough, in pieces
    assert caught.value.reserved - caught.value.allocated == 448 * MIB
    for conf in ("max_split_size_mb:128", "expandable_segments:True"):
        allocator = CachingAllocator(GIB, conf)
        fragment(allocator)
        assert allocator.stats()["allocated_bytes.all.current"] == (640 + 3 * 64) * MIB
        assert allocator.stats()["num_alloc_retries"] == 0


def test_oversize_blocks_are_not_cut_and_serve_only_requests_of_nearly_their_size() -> None:
    allocator = CachingAllocator(4 * GIB, "max_split_size_mb:100")
    address = allocator.malloc(200 * MIB)
    allocator.free(address)
    assert allocator.malloc(179 * MIB) != address  # 21 MiB too much
    again = allocator.malloc(181 * MIB)
    assert again == address
    assert allocator.stats()["allocated_bytes.all.current"] == (180 + 200) * MIB
    assert allocator.stats()["max_split_size"] == 100 * MIB


def test_oversize_blocks_are_given_back_before_everything_else() -> None:
    allocator = CachingAllocator(500 * MIB, "max_split_size_mb:100")
    large, small = allocator.malloc(200 * MIB), allocator.malloc(50 * MIB)
    allocator.malloc(220 * MIB)
    allocator.free(large)
    allocator.free(small)
    allocator.malloc(150 * MIB)
    assert allocator.stats()["num_alloc_retries"] == 0
    assert sorted(s["total_size"] // MIB for s in allocator.segments()) == [50, 150, 220]


def test_expandable_segments_grow_by_pages_and_give_back_only_whole_ones() -> None:
    allocator = CachingAllocator(4 * GIB, "expandable_segments:True")
    a, b, c = (allocator.malloc(15 * MIB) for _ in range(3))
    assert figures(allocator) == (45 * MIB, 60 * MIB)
    assert (b - a, c - b) == (15 * MIB, 15 * MIB)
    assert len(allocator.segments()) == 1
    assert allocator.stats()["segment.all.current"] == 0  # cudaMalloc was never called
    allocator.free(b)
    allocator.empty_cache()  # 15 to 30 and 45 to 60 MiB are free: no page of 20 MiB lies within
    assert figures(allocator) == (30 * MIB, 60 * MIB)
    allocator.free(a)
    allocator.empty_cache()
    assert figures(allocator) == (15 * MIB, 40 * MIB)
    allocator.free(c)
    allocator.empty_cache()
    assert figures(allocator) == (0, 0)
    assert allocator.segments() == []


def test_expandable_segments_fill_holes_before_they_grow() -> None:
    allocator = CachingAllocator(4 * GIB, "expandable_segments:True")
    a, b = allocator.malloc(40 * MIB), allocator.malloc(20 * MIB)
    allocator.free(a)
    allocator.empty_cache()
    assert figures(allocator)[1] == 20 * MIB
    assert len(allocator.segments()) == 1
    assert allocator.malloc(40 * MIB) == a
    assert allocator.malloc(60 * MIB) == b + 20 * MIB


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ("max_split:1", "no option 'max_split'; there are expandable_segments"),
        ("max_split_size_mb:19", "must be >= 20"),
        ("max_split_size_mb:many", "max_split_size_mb:many"),
        ("expandable_segments:true", "write True or False"),
        ("expandable_segments", "cannot read"),
        ("garbage_collection_threshold:1.0", "between 0 and 1"),
        ("roundup_power2_divisions:4", "no option 'roundup_power2_divisions'"),
    ],
)
def test_a_wrong_option_is_told_with_what_there_is(conf: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simulate("H100", alloc_conf=conf)


def test_options_of_other_parts_are_accepted() -> None:
    conf = parse("backend:native, pinned_use_background_threads:True,max_split_size_mb: 64")
    assert conf.max_split_size == 64 * MIB


# ------------------------------------------------------------------------------------ random programs


CONFS = [
    "",
    "max_split_size_mb:32",
    "expandable_segments:True",
    "garbage_collection_threshold:0.6",
]


def program(allocator: CachingAllocator, seed: int, steps: int = 400) -> Iterator[CachingAllocator]:
    """Sizes from bytes to tens of MiB on three streams; frees, record_stream, empty_cache, waits."""
    dice = random.Random(seed)
    live: list[int] = []
    for _ in range(steps):
        choice = dice.random()
        if choice < 0.55 or not live:
            size = dice.choice([dice.randint(1, 4096), dice.randint(1, MIB), dice.randint(MIB, 60 * MIB)])
            try:
                live.append(allocator.malloc(size, dice.choice([0, 0, 0, 1, 2])))
            except OutOfMemory:
                allocator.free(live.pop(dice.randrange(len(live))))
        elif choice < 0.93:
            address = live.pop(dice.randrange(len(live)))
            if dice.random() < 0.2:
                allocator.record_stream(address, dice.choice([1, 2, 3]))
            allocator.free(address)
        elif choice < 0.97:
            allocator.finish(dice.choice([1, 2, None]))
        elif choice < 0.985:
            allocator.empty_cache()
        yield allocator


def check(allocator: CachingAllocator) -> None:
    """What must always hold, recomputed from the blocks."""
    segments, stats, conf = allocator.segments(), allocator.stats(), allocator.conf
    assert sum(s["total_size"] for s in segments) == stats["reserved_bytes.all.current"]
    assert sum(s["allocated_size"] for s in segments) == stats["allocated_bytes.all.current"]
    assert sum(s["active_size"] for s in segments) == stats["active_bytes.all.current"]
    assert allocator.driver.used == stats["reserved_bytes.all.current"] <= allocator.driver.total
    states = [b["state"] for s in segments for b in s["blocks"]]
    assert states.count("active_allocated") == stats["allocation.all.current"]
    if not conf.expandable_segments:
        assert len(segments) == stats["segment.all.current"]
        split = [b for s in segments if len(s["blocks"]) > 1 for b in s["blocks"] if b["state"] == "inactive"]
        assert len(split) == stats["inactive_split.all.current"]
        assert sum(b["size"] for b in split) == stats["inactive_split_bytes.all.current"]
    for before, after in pairwise(segments):
        assert before["address"] + before["total_size"] <= after["address"]
    for segment in segments:
        place = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == place
            assert block["size"] >= block["requested_size"] or block["state"] == "inactive"
            assert block["size"] % 512 == 0
            place += block["size"]
        for left, right in pairwise(segment["blocks"]):  # freed neighbours have merged
            assert not left["state"] == right["state"] == "inactive"
    cached = [
        (size, address)
        for free in allocator.reserved.lists()
        for row in free.blocks.values()
        for size, address, _ in row
    ]
    inactive = [(b["size"], b["address"]) for s in segments for b in s["blocks"] if b["state"] == "inactive"]
    assert sorted(cached) == sorted(inactive)


@pytest.mark.parametrize("conf", CONFS)
@pytest.mark.parametrize("seed", range(3))
def test_invariants_hold_under_random_programs(conf: str, seed: int) -> None:
    allocator = CachingAllocator(400 * MIB, conf)
    allocator.set_memory_fraction(0.9)
    for step, _ in enumerate(program(allocator, seed)):
        if step % 5 == 0:
            check(allocator)
    check(allocator)
    assert allocator.stats()["num_ooms"] > 0  # the program was large enough to mean something
    for address in [a for a, b in allocator.active.items() if b.allocated]:
        allocator.free(address)
    allocator.finish()
    allocator.empty_cache()
    assert figures(allocator) == (0, 0)
    check(allocator)


# ------------------------------------------------------------------------------------ the simulated GPU


@pytest.fixture
def gpu() -> Iterator[SimGPU]:
    device = simulate("A100")
    with device:
        yield device


def empty(gpu: SimGPU, nbytes: int) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, device=gpu.device)


def test_tensors_take_memory_and_give_it_back(gpu: SimGPU) -> None:
    x = torch.randn(1000, device=gpu.device)
    assert gpu.memory_allocated() == 4096
    assert gpu.memory_reserved() == 2 * MIB
    view = x[10:20]
    assert gpu.memory_allocated() == 4096
    del x
    assert gpu.memory_allocated() == 4096  # the view holds the storage
    del view
    assert (gpu.memory_allocated(), gpu.memory_reserved()) == (0, 2 * MIB)
    gpu.empty_cache()
    assert gpu.memory_reserved() == 0
    assert (gpu.max_memory_allocated(), gpu.max_memory_reserved()) == (4096, 2 * MIB)
    gpu.reset_peak_memory_stats()
    assert gpu.max_memory_allocated() == gpu.memory_stats()["allocated_bytes.all.peak"] == 0


def test_operators_results_lists_and_what_was_made_before_the_block_count() -> None:
    layer = torch.nn.Linear(512, 512, device="meta")
    gpu = simulate("A100")
    with gpu:
        out = torch._foreach_add([torch.ones(4, device=gpu.device)] * 3, 1)
        assert gpu.memory_stats()["allocation.all.current"] == 3
        x = torch.ones(8, 512, device=gpu.device)
        before = gpu.memory_allocated()
        layer(x)
        assert gpu.memory_allocated() - before >= layer.weight.nbytes + layer.bias.nbytes
        moved = torch.ones(4096).to(gpu.device)
        listed = torch.tensor([1.0, 2.0], device=gpu.device) + 1
        assert gpu._memory.extent(moved) is not None
        assert gpu._memory.extent(listed) is not None
        assert gpu._memory.extent(torch.ones(3)) is None
        del out


def test_the_first_matmul_brings_a_workspace_for_each_handle_and_stream(gpu: SimGPU) -> None:
    x = torch.randn(64, 64, device=gpu.device, requires_grad=True)
    before = gpu.memory_allocated()
    y = x @ x
    assert gpu.memory_allocated() - before == 8519680 + 64 * 64 * 4  # CublasHandlePool.cpp's default
    before = gpu.memory_allocated()
    z = x @ x
    assert gpu.memory_allocated() - before == 64 * 64 * 4
    (y + z).sum().backward()  # in its own thread, with its own handle
    assert gpu.memory_stats()["allocated_bytes.large_pool.current"] == 2 * 8519680


def test_extent_is_what_a_view_touches(gpu: SimGPU) -> None:
    x = torch.empty(10, 10, device=gpu.device)
    whole = gpu._memory.extent(x)
    assert whole is not None
    address, nbytes = whole
    assert nbytes == 400
    assert gpu._memory.extent(x[2:4]) == (address + 80, 80)
    assert gpu._memory.extent(x[:, 3]) == (address + 12, 9 * 40 + 4)
    assert gpu._memory.extent(x[:0]) is None


def test_growing_a_storage_moves_it(gpu: SimGPU) -> None:
    x = torch.empty(100, device=gpu.device)
    x.resize_(2 * MIB)
    assert gpu.memory_allocated() == 8 * MIB
    assert gpu.memory_stats()["allocation.all.current"] == 1


def test_streams_own_their_blocks_and_record_stream_defers_reuse(gpu: SimGPU) -> None:
    side = gpu.Stream()
    x = torch.randn(4096, 4096, device=gpu.device)
    with gpu.stream(side):
        y = torch.randn(8, device=gpu.device)
    assert [s["stream"] for s in gpu.memory_snapshot()] == [0, side.stream_id]
    side.wait_stream(gpu.default_stream())
    with gpu.stream(side):
        for _ in range(20):
            y = x @ x
    x.record_stream(side)  # type: ignore[arg-type]
    where = gpu._memory.extent(x)
    del x
    states = {b["state"] for s in gpu.memory_snapshot() for b in s["blocks"]}
    assert "active_pending_free" in states
    other = torch.empty(4096, 4096, device=gpu.device)
    assert gpu._memory.extent(other) != where
    side.synchronize()
    assert gpu._memory.extent(torch.empty(4096, 4096, device=gpu.device)) == where
    del y


def test_mem_get_info_counts_the_context_and_a_fraction_is_a_float(gpu: SimGPU) -> None:
    free, total = gpu.mem_get_info()
    assert total == gpu.card.memory_bytes
    assert 0 < total - free < GIB
    x = empty(gpu, 100 * MIB)
    assert gpu.mem_get_info()[0] == free - 100 * MIB
    with pytest.raises(TypeError, match="must be `float`"):
        gpu.set_per_process_memory_fraction(1)
    del x


def test_running_out_of_memory_is_a_fault_told_once_and_the_program_goes_on() -> None:
    gpu = simulate("H100", memory_bytes=GIB)
    with pytest.raises(SimulationError, match=r"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
                       r"300.00 MiB. GPU 0 has a total capacity of 1024.00 MiB") as caught, gpu:  # fmt: skip
        tensors = [empty(gpu, 300 * MIB) for _ in range(6)]
    assert len(caught.value.faults) == 1
    assert gpu.memory_allocated() == 1800 * MIB
    assert gpu.mem_get_info()[0] == 0
    del tensors
    gpu.empty_cache()
    with pytest.raises(SimulationError, match="Tried to allocate 2.00 GiB"), gpu:
        empty(gpu, 2 * GIB)


@pytest.mark.parametrize(
    ("conf", "fits"), [("", False), ("max_split_size_mb:128", True), ("expandable_segments:True", True)]
)
def test_a_program_that_fragments_fits_with_the_right_option(conf: str, fits: bool) -> None:
    gpu = simulate("H100", memory_bytes=GIB + 107 * MIB, alloc_conf=conf)

    def train() -> None:
        with gpu:
            big = empty(gpu, 640 * MIB)
            del big
            kept = [empty(gpu, 64 * MIB) for _ in range(3)]
            kept.append(empty(gpu, 640 * MIB))

    if fits:
        train()
    else:
        with pytest.raises(SimulationError, match="448.00 MiB is reserved by PyTorch but unallocated"):
            train()


def test_cudafree_waits_for_the_device(gpu: SimGPU) -> None:
    x = torch.randn(4096, 4096, device=gpu.device)
    x @ x
    gpu.empty_cache()
    assert gpu.clock_ns() >= gpu.kernels[-1].end_ns


def test_garbage_collected_in_the_middle_of_an_allocation_is_freed_after_it(gpu: SimGPU) -> None:
    class Holder:
        def __init__(self) -> None:
            self.tensor, self.me = empty(gpu, 5 * MIB), self

    Holder()
    gc.collect()
    assert gpu.memory_allocated() == 0
    Holder()
    memory = gpu._memory
    with memory._busy:  # as if the allocator's own objects had set the collector off
        gc.collect()
    assert gpu.memory_allocated() == 5 * MIB
    empty(gpu, 1)
    assert gpu.memory_allocated() == 0


# ------------------------------------------------------------------------------------ history and snapshot


def record(gpu: SimGPU, **options: Any) -> dict[str, Any]:
    gpu.memory._record_memory_history(**options)
    model = torch.nn.Linear(256, 256, device=gpu.device)
    model(torch.randn(64, 256, device=gpu.device)).sum().backward()
    return gpu.memory._snapshot()


def test_a_snapshot_has_the_form_that_pytorchs_own_tools_read(gpu: SimGPU) -> None:
    from torch.cuda import _memory_viz as viz

    snapshot = record(gpu)
    assert {"segments", "device_traces", "allocator_settings", "external_annotations"} <= set(snapshot)
    assert snapshot["simulated"] == "A100"
    assert "total_reserved" in viz.segsum(snapshot)
    assert "cudaMalloc" in viz.trace(snapshot)
    lines: list[str] = []
    viz.memory(snapshot, format_flamegraph=lines.append)
    assert "test_allocator.py" in lines[0]
    assert "device_traces" not in viz.trace_plot(snapshot)  # a page with the pickle inside
    first = snapshot["device_traces"][0][0]
    assert set(first) == {
        *(
            "action",
            "addr",
            "size",
            "stream",
            "time_us",
            "compile_context",
            "user_metadata",
            "pool_id",
            "frames",
        )
    }
    assert snapshot["device_traces"][0][-1]["action"] == "snapshot"


def test_a_dump_is_plain_builtins_without_the_machines_paths_and_equal_each_time(tmp_path: Any) -> None:
    class Plain(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            raise AssertionError(f"{module}.{name} in a snapshot")

    for name in ("one", "two"):
        device = simulate("H100")
        with device:
            record(device)
            device.memory._dump_snapshot(str(tmp_path / name))
    with open(tmp_path / "one", "rb") as file:
        loaded = Plain(file).load()
    assert loaded["simulated"] == "H100"
    data = (tmp_path / "one").read_bytes()
    assert data == (tmp_path / "two").read_bytes()
    assert b"/home" not in data
    assert b"site-packages" not in data
    assert str(tmp_path).encode() not in data


def test_the_history_can_be_short_or_without_places_or_over(gpu: SimGPU) -> None:
    assert len(record(gpu, max_entries=3)["device_traces"][0]) == 3
    plain = record(gpu, context=None, clear_history=True)
    assert all(not e["frames"] for e in plain["device_traces"][0])
    state = record(gpu, context="state", clear_history=True)
    assert all(not e["frames"] for e in state["device_traces"][0])
    assert any(b["frames"] for s in state["segments"] for b in s["blocks"])
    with pytest.raises(ValueError, match="enabled is one of"):
        gpu.memory._record_memory_history(enabled="some")
    gpu.memory._record_memory_history(enabled=None)
    assert gpu.memory._snapshot()["device_traces"] == [[]]


def test_frees_say_where_they_were_asked_for(gpu: SimGPU) -> None:
    gpu.memory._record_memory_history()
    x = empty(gpu, MIB)

    def forget(holder: list[torch.Tensor]) -> None:
        holder.clear()

    holder = [x]
    del x
    forget(holder)
    freed = [e for e in gpu.memory._snapshot()["device_traces"][0] if e["action"] == "free_requested"]
    assert freed[-1]["frames"][0]["name"] == "forget"


def test_the_real_gpu_has_the_same_names() -> None:
    names = {n for n in vars(MemoryNames) if not n.startswith("_")}
    real = RealGPU.__new__(RealGPU)  # which hands torch.cuda's through
    assert len(names) == 10 and all(getattr(real, name) is getattr(torch.cuda, name) for name in names)
    assert real.memory is torch.cuda.memory and names < set(dir(simulate("H100")))
    with pytest.raises(RuntimeError, match="does not find races"):
        real.races  # noqa: B018
    assert simulate("H100").memory.memory_allocated() == 0
    with pytest.raises(AttributeError, match="has no 'nothing'"):
        simulate("H100").memory.nothing  # noqa: B018
