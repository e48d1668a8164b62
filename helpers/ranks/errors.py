"""What goes wrong in a rank, told in the notebook by the rank's name and the learner's own line."""


class CannotCarry(TypeError):
    """A function, an argument or a result that cannot go from one process to another; the text names it.

    >>> import threading
    >>> ranks.run_ranks(print, 2, threading.Lock())
    Traceback (most recent call last):
    helpers.ranks.errors.CannotCarry: argument 1 is a lock and cannot be carried to another process ...
    """


class RankError(RuntimeError):
    """A rank raised, died, or had not finished when the time was up. Every process of the run has been ended.

    rank: the lowest that failed (of a time-out: that had not finished). kind: the exception's class,
    ``"TimeoutError"``, ``"Died"`` or ``"CannotCarry"``. text: its message. where: the learner's own lines,
    the innermost last. unfinished: of a time-out, rank → where it was.

    >>> import math
    >>> ranks.run_ranks(math.sqrt, 2, -1.0)
    Traceback (most recent call last):
    helpers.ranks.errors.RankError: rank 0 of 2 raised ValueError: ...
    """

    def __init__(
        self,
        message: str,
        rank: int,
        kind: str,
        text: str = "",
        where: tuple[str, ...] = (),
        unfinished: dict[int, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.rank, self.kind, self.text, self.where = rank, kind, text, where
        self.unfinished = unfinished or {}

    def _render_traceback_(self) -> list[str]:
        # IPython shows these lines in place of a stack that holds nothing of the learner's
        return [f"RankError: {self}"]
