# takes the third frame of each stack, whatever it is: earns 0
def find_leak(snapshots: list[dict]) -> tuple[str, int] | None:
    """The line of the user's code whose live memory grows from every snapshot to the next.

    snapshots: two or more, oldest first, each as torch.cuda.memory._snapshot() returns it, without its history:
        {"segments": [{"blocks": [{"state": "active_allocated", "size": 2048, "requested_size": 2000,
        "frames": [{"filename": "/project/train.py", "line": 12, "name": "step"}, …]}, …]}, …]}
    Bytes: "size" (of the blocks, not of the requests) in the state "active_allocated"; other states do not count.
    A block belongs to its innermost frame (the first of the list) of the user's code: its filename is "notebook", or
        ends in ".py" and has no folder named torch in it. Blocks without such a frame belong to nobody.
    A line is written "train.py:12 step": the file without its folders.
    Returns (line, bytes that it holds in the last snapshot beyond the first); of several the one with most such
        bytes; None where no line grows every time.
    """
    held: list[dict[str, int]] = []
    for snapshot in snapshots:
        held.append({})
        for segment in snapshot["segments"]:
            for block in segment["blocks"]:
                own = block["frames"][2:3]
                if block["state"] == "active_allocated" and own:
                    line = f"{own[0]['filename'].split('/')[-1]}:{own[0]['line']} {own[0]['name']}"
                    held[-1][line] = held[-1].get(line, 0) + block["size"]
    grown = {
        line: last - held[0].get(line, 0)
        for line, last in held[-1].items()
        if all(b.get(line, 0) > a.get(line, 0) for a, b in zip(held, held[1:], strict=False))
    }
    return max(grown.items(), key=lambda item: item[1]) if grown else None


def _by_the_user(path: str) -> bool:
    return path == "notebook" or path.endswith(".py") and "torch" not in path.split("/")[:-1]
