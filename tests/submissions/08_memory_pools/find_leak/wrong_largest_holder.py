# names who holds most: earns 0
def find_leak(snapshots):
    held = {}
    for segment in snapshots[-1]["segments"]:
        for block in segment["blocks"]:
            own = [f for f in block["frames"] if (f["filename"] == "notebook" or f["filename"].endswith(".py") and "/torch/" not in "/" + f["filename"])]
            if own and block["state"] == "active_allocated":
                line = f"{own[0]['filename'].split('/')[-1]}:{own[0]['line']} {own[0]['name']}"
                held[line] = held.get(line, 0) + block["size"]
    return max(held.items(), key=lambda item: item[1]) if held else None
