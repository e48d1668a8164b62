"""Which names a text of Python reads, and which it gives a meaning."""

import symtable
from functools import lru_cache
from typing import NamedTuple


class Names(NamedTuple):
    """read: from outside, in functions too. made: at the top level. counted: by its functions (``global calls``)."""

    read: frozenset[str]
    made: frozenset[str]
    counted: frozenset[str]


@lru_cache(4096)
def names(source: str) -> Names:
    """Raises what Python does of a text that is none of its own: SyntaxError, ValueError, and of a deep one RecursionError."""
    top = symtable.symtable(source, "<cell>", "exec")
    made = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    read, counted, scopes = set[str](), set[str](), [top]
    for scope in scopes:  # grows meanwhile
        scopes += scope.get_children()
        for s in scope.get_symbols():
            if s.is_referenced() and (scope is top or s.is_global()):
                read.add(s.get_name())
            if s.is_declared_global() and s.is_assigned():
                counted.add(s.get_name())
    return Names(frozenset(read - made), frozenset(made), frozenset(counted - made))
