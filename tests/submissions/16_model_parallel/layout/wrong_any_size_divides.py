# cuts the width and the layers where they do not divide: earns 0
import itertools
import math


def layout(model, network, gpus=64):
    L, h, s, B = model["layers"], model["width"], model["tokens"], model["sequences"]
    P, a = 12 * L * h**2, 2 * s * h

    def message(size, link):
        return link[0] + size / link[1]

    def candidates():
        for tp in (d for d in range(1, gpus + 1) if gpus % d == 0):
            for pp in (d for d in range(1, gpus // tp + 1) if gpus // tp % d == 0):
                dp = gpus // tp // pp
                m = B // dp
                held = (16 * P + min(pp, m) * 34 * s * h * L) / (tp * pp)
                if B % dp == 0 and held <= network["memory"]:
                    for order in itertools.permutations(("dp", "pp", "tp")):
                        yield dict(tp=tp, pp=pp, dp=dp), list(order)

    def seconds(sizes, order):
        tp, pp, dp = sizes["tp"], sizes["pp"], sizes["dp"]

        def link(axis):
            reach = math.prod(sizes[x] for x in order[order.index(axis) :])
            return network["inside"] if reach <= network["per_node"] else network["between"]

        one = 6 * s * P / (pp * tp * network["flops"])
        one += 4 * L / pp * 2 * (tp - 1) * message(a / tp, link("tp"))
        one += 2 * message(a, link("pp")) * (pp > 1)
        return (B // dp + pp - 1) * one + 2 * (dp - 1) * message(2 * P / (tp * pp * dp), link("dp"))

    every = [(seconds(*c), *c) for c in candidates()]
    if not every:
        raise ValueError("nothing fits")
    step, sizes, order = min(every, key=lambda e: e[0])
    return {**sizes, "order": order, "step_s": step}
