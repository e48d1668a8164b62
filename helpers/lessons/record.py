"""Record the lessons' experiments on the GPU of this machine. Needs torch ≥ 2.11, NumPy and matplotlib.

python -m helpers.lessons.record                            everything, into the course's own folder
python -m helpers.lessons.record --only 03 07               some lessons, or experiments by name
python -m helpers.lessons.record --simulate H100 --out DIR  a dry run; never accepted as a recording

Run again, it goes on where it stopped: what is there and was made by the same code is kept (--again: not).
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import re
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from helpers import keeping, lessons
from helpers.recordings import files, manifest, registry, running
from helpers.recordings.registry import Experiment
from helpers.text.terminal import lenient

BUDGET_S = 1200.0


def record(
    experiments: list[Experiment],
    folder: Path,
    *,
    simulated: str | None = None,
    again: bool = False,
    budget_s: float = BUDGET_S,
) -> dict[str, str]:
    """Record some experiments into a folder; what went wrong with each, or "". Refused if the folder is another's."""
    began = time.monotonic()
    device = _describe(simulated)
    made = _manifest(folder, device, simulated)
    told: dict[str, str] = {}
    for place, one in enumerate(experiments, 1):
        left = budget_s - (time.monotonic() - began)
        head = f"[{place}/{len(experiments)}] {one.name:<34}"
        if not again and _is_there(one, made, folder):
            told[one.name] = ""
            when = made["experiments"][one.name]["date"]
            print(f"{head} kept: recorded {when} by the same code", flush=True)
            continue
        if left < one.seconds:
            needs = f"{left:.0f} s are left of {budget_s:.0f}, and it may take {one.seconds:.0f}"
            told[one.name] = f"left out: {needs}"
            print(f"{head} {told[one.name]}; run the command again to go on", flush=True)
            continue
        print(f"{head} …", end=" ", flush=True)
        entry = _one(one, folder, simulated, timeout=min(left, 6 * one.seconds + 60))
        told[one.name] = entry.get("error", "")
        made["experiments"][one.name] = entry
        manifest.save(folder, made)
        size = sum(f["bytes"] for f in entry["files"].values()) / 1024
        print(told[one.name] or f"{entry['seconds']:.1f} s, {size:.0f} KiB", flush=True)
    manifest.save(folder, made)
    wrong = [name for name, problem in told.items() if problem]
    print(f"{len(told) - len(wrong)} of {len(told)} recorded on {device['name']} in {folder.name}")
    return told


def _one(one: Experiment, folder: Path, simulated: str | None, timeout: float) -> dict[str, Any]:
    start = time.monotonic()
    entry: dict[str, Any] = {"code": one.code, "date": date.today().isoformat(), "files": {}}
    with tempfile.TemporaryDirectory() as apart:
        problem = running.run_apart(one, Path(apart), simulated, timeout)
        for path in sorted(Path(apart).glob("*.json.gz")) if not problem else []:
            kind, data = path.name.partition(".")[0], path.read_bytes()
            target = f"{one.name.replace('/', '-')}.{kind}.json.gz"
            keeping.write(folder / target, data)
            entry["files"][kind] = {"path": target, "sha256": files.digest(data), "bytes": len(data)}
    entry["seconds"] = round(time.monotonic() - start, 1)
    return entry | ({"error": problem} if problem else {})


def _manifest(folder: Path, device: dict[str, Any], simulated: str | None) -> dict[str, Any]:
    """The folder's manifest if it goes on, a new one if it begins."""
    fresh = manifest.begin(package_hash(), simulated, device)
    if not (folder / manifest.NAME).exists():
        return fresh
    old = manifest.read(folder, dry_runs=True)
    for key in ("device", "torch", "simulated"):
        if old.get(key) != fresh[key]:
            raise manifest.Refused(
                f"{folder.name} was recorded with another {key} ({old.get(key)}, here {fresh[key]}): "
                "one folder holds one device and one version; take another with --out"
            )
    return fresh | {"experiments": old["experiments"]}


def _is_there(one: Experiment, made: dict[str, Any], folder: Path) -> bool:
    entry = made["experiments"].get(one.name)
    if not entry or entry.get("error") or entry["code"] != one.code:
        return False
    try:
        return manifest.load(one.name, folder, dry_runs=True) is not None
    except manifest.Refused:
        return False


def package_hash() -> str:
    """Of every Python file of the package: which state of the course made a recording."""
    digest = hashlib.sha256()
    root = Path(__file__).resolve().parents[1]
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _describe(simulated: str | None) -> dict[str, Any]:
    """The device, asked in another process, so that this one holds no memory on it."""
    if simulated:
        return running.describe(simulated)
    with ProcessPoolExecutor(1, get_context("spawn")) as apart:
        return apart.submit(running.describe, None).result()


def load_all() -> dict[str, Experiment]:
    """Every experiment there is, in order of names."""
    lessons.load("recorded")
    importlib.import_module("helpers.calibration.recorded")
    return dict(sorted(registry.EXPERIMENTS.items()))


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    layout, name = argparse.RawDescriptionHelpFormatter, "python -m helpers.lessons.record"
    parser = argparse.ArgumentParser(prog=name, description=__doc__, formatter_class=layout)
    option = parser.add_argument
    option("--out", type=Path, help="folder (default: the course's own, by the device's name)")
    option("--only", nargs="+", default=[], metavar="NAME", help='lessons or experiments: 03, "07/x"')
    option("--simulate", metavar="CARD", help="dry run on a simulated card; needs --out")
    option("--again", action="store_true", help="record what is there anew")
    option("--budget", type=float, default=BUDGET_S, help="seconds in all (default: %(default).0f)")
    option("--list", action="store_true", help="name the experiments and end")
    chosen = parser.parse_args(argv)
    if chosen.simulate and not (chosen.out or chosen.list):
        parser.error("a dry run needs --out: it must not lie among the course's recordings")
    return chosen


def main(argv: list[str] | None = None) -> int:
    """The command line. 0: all recorded; 1: some were not; 2: nothing could be."""
    lenient()
    chosen = _arguments(argv)
    load_all()
    try:
        experiments = registry.select(chosen.only)
        if chosen.list:
            print("\n".join(f"{one.name:<34} up to {one.seconds:.0f} s" for one in experiments))
            return 0
        folder = chosen.out or manifest.DATA / _slug(_describe(None)["name"])
        how = {"simulated": chosen.simulate, "again": chosen.again, "budget_s": chosen.budget}
        told = record(experiments, folder, **how)
    except (ValueError, RuntimeError) as problem:
        print(f"record: {problem}", file=sys.stderr)
        return 2
    return 1 if any(told.values()) else 0


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


if __name__ == "__main__":
    sys.exit(main())
