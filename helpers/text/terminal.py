"""What a terminal cannot show costs no result."""

import io
import sys


def lenient() -> None:
    """Print "?" where a terminal has no sign for what is said (≈, ·, ✓), as one set to GBK, latin-1 or ASCII has none.

    Else a result would be lost to a UnicodeEncodeError. A notebook's output is no such stream, and stays as it is.
    """
    for stream in (sys.stdout, sys.stderr):  # either may be None
        if isinstance(stream, io.TextIOWrapper) and "utf" not in stream.encoding.lower():
            stream.reconfigure(errors="replace")


def printable(value: object) -> str:
    """As text without halves of surrogate pairs, which JSON can say and which a file's name has for odd bytes."""
    return str(value).encode("utf-8", "replace").decode("utf-8")
