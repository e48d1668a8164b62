def choose_checkpoints(kept, inputs, flops, budget):
    """Block by block: for each number of bytes held so far, the cheapest way there."""
    ways = {0: (0, [])}
    for i, (whole, part, price) in enumerate(zip(kept, inputs, flops)):
        further = {}
        for held, (cost, chosen) in ways.items():
            options = [(held + whole, cost, chosen)]
            if held + whole <= budget:
                options.append((held + part, cost + price, [*chosen, i]))
            for bytes_held, total, way in options:
                if bytes_held <= budget and (bytes_held not in further or total < further[bytes_held][0]):
                    further[bytes_held] = total, way
        ways = further
    if not ways:
        raise ValueError("no choice fits")
    return min(ways.values())[1]
