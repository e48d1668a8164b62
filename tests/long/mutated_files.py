"""Ten thousand damaged traces and snapshots: none may end in a traceback.

    python -m tests.long.mutated_files                # some minutes
    python -m tests.long.mutated_files 500 --seed 7

What does is printed, its file kept, and the command ends with 1.
"""

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

from tests.mutating import broken

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("error")
    folder = Path(tempfile.mkdtemp(prefix="mutated-"))
    failed = 0
    for name, told in broken(given.count, folder, given.seed):
        failed += 1
        print(f"{folder / name}\n{told}", flush=True)
    print(f"{given.count:,} files, {failed} ended in a traceback")
    sys.exit(1 if failed else 0)
