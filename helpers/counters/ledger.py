"""Where the numbers are while a run is being counted."""

from helpers.counters.counts import Counts


class Ledger:
    """Takes notes, and writes them into a :class:`Counts` when asked.

    The numbers are variables of a function and not fields of an object: while code is counted in grading, it
    must find nothing, neither on the stack nor among the garbage collector's objects, to write its own numbers into.
    """

    def __init__(self) -> None:
        operators = views = copies = flops = syncs = 0
        new_storages = allocated_bytes = live_bytes = peak_live_bytes = saved_bytes = 0
        by_operator: dict[str, int] = {}
        sync_by: dict[str, int] = {}
        allocations: list[tuple[str, int]] = []

        def ran(name: str, view: bool, copy: bool) -> None:
            nonlocal operators, views, copies
            operators, views, copies = operators + 1, views + bool(view), copies + bool(copy)
            by_operator[name] = by_operator.get(name, 0) + 1

        def computed(n: int) -> None:
            nonlocal flops
            flops += n

        def waited(name: str) -> None:
            nonlocal syncs
            syncs += 1
            sync_by[name] = sync_by.get(name, 0) + 1

        def allocated(name: str, nbytes: int, new: bool) -> None:
            nonlocal new_storages, allocated_bytes, live_bytes, peak_live_bytes
            new_storages, allocated_bytes = new_storages + bool(new), allocated_bytes + nbytes
            live_bytes += nbytes
            peak_live_bytes = max(peak_live_bytes, live_bytes)
            allocations.append((name, nbytes))

        def freed(nbytes: int) -> None:
            nonlocal live_bytes
            live_bytes -= nbytes

        def saved(nbytes: int) -> None:
            nonlocal saved_bytes
            saved_bytes += nbytes

        def write(counts: Counts) -> None:
            counts.operators, counts.views, counts.copies, counts.flops = operators, views, copies, flops
            counts.syncs, counts.new_storages, counts.saved_bytes = syncs, new_storages, saved_bytes
            counts.bytes_allocated, counts.live_bytes = allocated_bytes, live_bytes
            counts.peak_live_bytes = peak_live_bytes
            counts.by_operator, counts.sync_by = dict(by_operator), dict(sync_by)
            counts.allocations = list(allocations)

        self.ran, self.computed, self.waited = ran, computed, waited
        self.allocated, self.freed, self.saved, self.write = allocated, freed, saved, write
