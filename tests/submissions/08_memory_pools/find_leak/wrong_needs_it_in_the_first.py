# a line that the first snapshot lacks is left out: earns 1
def find_leak(snapshots):
    def lines(s):
        out = {}
        for seg in s["segments"]:
            for b in seg["blocks"]:
                if b["state"] != "active_allocated":
                    continue
                for f in b["frames"]:
                    name = f["filename"]
                    if name == "notebook" or (name.endswith(".py") and "torch" not in name.split("/")[:-1]):
                        key = f"{name.rsplit('/', 1)[-1]}:{f['line']} {f['name']}"
                        out[key] = out.get(key, 0) + b["size"]
                        break
        return out

    of = [lines(s) for s in snapshots]
    grown = {k: of[-1][k] - of[0][k] for k in of[0] if all(b.get(k, 0) > a.get(k, 0) for a, b in zip(of, of[1:]))}
    return max(grown.items(), key=lambda kv: kv[1]) if grown else None
