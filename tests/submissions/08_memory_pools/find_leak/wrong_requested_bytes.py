# adds up what was asked for, not what is held: earns 0
def find_leak(snapshots: list[dict]) -> tuple[str, int] | None:
    held: list[dict[str, int]] = []
    for snapshot in snapshots:
        held.append({})
        for segment in snapshot["segments"]:
            for block in segment["blocks"]:
                own = [
                    f
                    for f in block["frames"]
                    if (f["filename"] == "notebook" or f["filename"].endswith(".py") and "/torch/" not in "/" + f["filename"])
                ]
                if block["state"] == "active_allocated" and own:
                    line = f"{own[0]['filename'].split('/')[-1]}:{own[0]['line']} {own[0]['name']}"
                    held[-1][line] = held[-1].get(line, 0) + block["requested_size"]
    grown = {
        line: last - held[0].get(line, 0)
        for line, last in held[-1].items()
        if all(b.get(line, 0) > a.get(line, 0) for a, b in zip(held, held[1:], strict=False))
    }
    return max(grown.items(), key=lambda item: item[1]) if grown else None
