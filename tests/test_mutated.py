"""Damaged files end in a sentence; `python -m tests.long.mutated_files` tries ten thousand."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

from tests.mutating import broken, originals


def test_damaged_traces_and_snapshots_never_end_in_a_traceback(tmp_path: Path) -> None:
    assert not "\n".join(told for _, told in broken(300, tmp_path, seed=27))


def test_a_snapshot_is_read_without_torch(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(originals()[1])
    assert pickle.loads(path.read_bytes())["segments"]
    code = (
        "import sys, time; from helpers import memory; found = memory.read(sys.argv[1]);"
        "assert found.allocated and not {'torch', 'numpy'} & set(sys.modules); print(time.process_time())"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.5
