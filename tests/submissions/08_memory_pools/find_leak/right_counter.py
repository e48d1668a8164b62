from collections import Counter


def _site(frames):
    for frame in frames:
        path = frame["filename"]
        if path == "notebook" or path.endswith(".py") and "/torch/" not in "/" + path:
            return f"{path.split('/')[-1]}:{frame['line']} {frame['name']}"
    return None


def find_leak(snapshots):
    tables = []
    for snapshot in snapshots:
        table = Counter()
        for segment in snapshot["segments"]:
            for block in segment["blocks"]:
                site = _site(block["frames"]) if block["state"] == "active_allocated" else None
                if site is not None:
                    table[site] += block["size"]
        tables.append(table)
    best = None
    for site in tables[-1]:
        series = [table[site] for table in tables]
        if all(later > earlier for earlier, later in zip(series, series[1:])):
            growth = series[-1] - series[0]
            if best is None or growth > best[1]:
                best = (site, growth)
    return best
