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
