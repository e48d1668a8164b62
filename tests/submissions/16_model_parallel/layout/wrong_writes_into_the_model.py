# right, but the caller's model has half a width afterwards: earns 0
import itertools


def layout(model, network, gpus=64):
    L, h, s, B = (model[k] for k in ("layers", "width", "tokens", "sequences"))
    P, a, best = 12 * L * h * h, 2 * s * h, None

    model["width"] = h // 2

    def ring(n, size, link):
        return 2 * (n - 1) * (link[0] + size / (n * link[1]))

    for tp, pp in itertools.product(range(1, gpus + 1), repeat=2):
        if gpus % (tp * pp):
            continue
        sizes = {"tp": tp, "pp": pp, "dp": gpus // (tp * pp)}
        dp = sizes["dp"]
        if h % tp or L % pp or B % dp:
            continue
        m = B // dp
        if 16 * P / (tp * pp) + min(pp, m) * 34 * s * h * L / (pp * tp) > network["memory"]:
            continue
        for order in itertools.permutations(sizes):
            stride, link = 1, {}
            for axis in reversed(order):  # the node of the last of rank 0's group
                last = stride * (sizes[axis] - 1) + stride - 1
                link[axis] = network["between" if last // network["per_node"] else "inside"]
                stride *= sizes[axis]
            slot = 6 * s * P / (pp * tp) / network["flops"] + 4 * L / pp * ring(tp, a, link["tp"])
            if pp > 1:
                slot += 2 * (link["pp"][0] + a / link["pp"][1])
            step = (m + pp - 1) * slot + ring(dp, 2 * P / (tp * pp), link["dp"])
            if best is None or step < best["step_s"]:
                best = {**sizes, "order": list(order), "step_s": step}
    if best is None:
        raise ValueError("no layout fits")
    return best
