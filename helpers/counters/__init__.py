"""Count what PyTorch code really does. Counts, unlike clocks, are the same on every run and every machine.

    counts = count(fn, *args)             with count() as counts:
    counts.bytes_allocated                    ...

The second form fills ``counts`` when its block ends. Both see every operator that this thread hands to the
dispatcher, the backward pass and optimizers included, and change no result: the same kernels run on the same
data. What each field means stands at :class:`Counts`. The garbage collector is off during the run, so that a tensor dies exactly when its last
reference does; tensors caught in a reference cycle therefore count as live, as they would cost memory.

``syncs`` on CPU tensors means: **would make the CPU wait if the tensor were on a GPU**. That cannot be
measured there, so it is a list: ``.item()`` and whatever calls it (``float``, ``bool``, ``if t:``), operators
whose result or its size depends on values (``nonzero``, boolean masks, ``equal``, ``unique``), ``.tolist()``,
``.numpy()``, ``np.asarray(t)``, an operator that writes into an array's memory, DLPack, pickling and
``torch.save``, printing or formatting, an operator that raises an error (its text may tell values), each Python list in an index, and blocking ``.cpu()`` and ``.to("cpu")``. Each counts
once, whatever it calls inside. torch.optim's own reads of the step counters that it keeps on the CPU make nobody wait, and are left out.

What is not there to be seen:

- temporaries and workspaces inside one kernel (a convolution's unfolded input, what an LSTM's backward makes
  and drops): no operator returns them, so ``bytes_allocated`` and ``peak_live_bytes`` do not include them.
  torch.profiler sees those: its figures are as large or larger.
- other threads and processes; NumPy's memory, until an operator writes into it; oneDNN tensors, which have no storage; tensors that
  existed before (freeing one lowers nothing).
- a GPU allocator's rounding: here a storage costs exactly its bytes.
- in ``saved_bytes``: tensors kept on a plain attribute (``ctx.x = x``) or in a closure, those that go
  through the program's own saved-tensor hooks. What of it the run itself made is in ``peak_live_bytes``, and in
  ``live_bytes`` if it is still held at the end. While torch.func differentiates, all that operators take and
  make is taken for saved: what it really keeps is as much or less.
- torch.compile: Dynamo stands aside while a dispatch mode is on, so the eager code runs and is counted.

The first run of a program may count more than the second: optimizer state, gradients and caches are made
once, and DTensor works out each new sharding once. That is the program's own doing and is counted, not
hidden: before counting a steady step, run one.
"""

import gc
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any, ParamSpec, overload

from helpers.counters.counts import Counts
from helpers.counters.operators import COPIES
from helpers.counters.standins import saved_tensors, stand_ins
from helpers.counters.watch import Watch, knowing_earlier, running

__all__ = ["COPIES", "Counts", "count", "knowing_earlier"]

P = ParamSpec("P")


class _Counting(AbstractContextManager[Counts]):
    """``with count() as c``: ``c`` is filled when the block ends, also when it raises."""

    def __enter__(self) -> Counts:
        self.watch, self.counts = Watch(), Counts()
        self.collecting = gc.isenabled()
        # No gc.collect() first: it would cost 0.1 s, and old garbage is made of storages nobody here follows.
        gc.disable()
        if "torch._dynamo" in sys.modules:
            Watch.hide_from_dynamo()
        running.watches.append(self.watch)
        with ExitStack() as stack:
            stack.callback(self._restore)
            stack.enter_context(stand_ins())
            stack.enter_context(saved_tensors())
            stack.enter_context(self.watch)
            self.stack = stack.pop_all()
        return self.counts

    def _restore(self) -> None:
        running.watches.remove(self.watch)
        self.watch.stop()
        if self.collecting:
            gc.enable()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stack.close()
        self.watch.ledger.write(self.counts)
        if self.watch.unknown_flops:
            names = ", ".join(sorted(self.watch.unknown_flops))
            warnings.warn(f"no FLOPs counted for {names}: shapes its formula does not know", stacklevel=3)
        if self.watch.failure is not None and error is None:
            raise RuntimeError("helpers.counters failed; the counts are not complete") from self.watch.failure


@overload
def count() -> AbstractContextManager[Counts]: ...
@overload
def count(fn: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Counts: ...
def count(fn: Callable[..., Any] | None = None, /, *args: Any, **kwargs: Any) -> Any:
    """Run ``fn(*args, **kwargs)`` and count what it did; without ``fn``, a context that counts its block.

    What ``fn`` returned is ``Counts.result``. An exception in ``fn`` passes through with everything restored;
    use the ``with`` form to read the counts up to it. Counts may be nested: each sees all that is inside it.

    >>> counts = count(lambda: (x @ x).relu().sum().item())
    >>> counts.operators, counts.syncs, counts.bytes_allocated
    (4, 1, 32772)
    """
    if fn is None:
        return _Counting()
    with _Counting() as counts:
        counts.result = fn(*args, **kwargs)
    return counts
