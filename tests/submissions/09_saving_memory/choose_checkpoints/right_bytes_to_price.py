# Dynamic programming: for each number of bytes held so far, the cheapest way to get there.
def choose_checkpoints(kept, inputs, flops, budget):
    ways = {0: (0, [])}
    for i in range(len(kept)):
        new = {}
        for held, (price, chosen) in ways.items():
            options = [(held + kept[i], price, chosen)]
            if held + kept[i] <= budget:
                options.append((held + inputs[i], price + flops[i], chosen + [i]))
            for total, cost, way in options:
                if total <= budget and (total not in new or cost < new[total][0]):
                    new[total] = (cost, way)
        ways = new
    if not ways:
        raise ValueError(budget)
    return min(ways.values(), key=lambda way: way[0])[1]
