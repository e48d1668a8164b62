# Goes through the blocks from the last to the first choice of each, and turns back where it is too dear already.
def choose_checkpoints(kept, inputs, flops, budget):
    best = [float("inf"), None]

    def walk(i, held, price, chosen):
        if held > budget or price >= best[0]:
            return
        if i == len(kept):
            best[:] = [price, chosen]
            return
        walk(i + 1, held + kept[i], price, chosen)
        if held + kept[i] <= budget:
            walk(i + 1, held + inputs[i], price + flops[i], [*chosen, i])

    walk(0, 0, 0, [])
    if best[1] is None:
        raise ValueError("the budget is too small")
    return best[1]
