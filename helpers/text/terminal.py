"""What a terminal cannot show costs no result; and what nobody is to see."""

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Iterator


def lenient() -> None:
    """Print "?" where a terminal has no sign for what is said (≈, ·, ✓), as one set to GBK, latin-1 or ASCII has none.

    Else a result would be lost to a UnicodeEncodeError. A notebook's output is no such stream, and stays as it is.
    """
    for stream in (sys.stdout, sys.stderr):  # either may be None
        if isinstance(stream, io.TextIOWrapper) and "utf" not in stream.encoding.lower():
            stream.reconfigure(errors="replace")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what is printed, warned of and logged inside."""
    logging.disable(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def printable(value: object) -> str:
    """As text without halves of surrogate pairs, which JSON can say and which a file's name has for odd bytes."""
    return str(value).encode("utf-8", "replace").decode("utf-8")
