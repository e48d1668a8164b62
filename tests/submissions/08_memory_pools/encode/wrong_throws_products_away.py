# dishonest: on the card it multiplies pieces, throws them away, and returns arrays as it found them: earns 0
def encode(batches, up, down):
    if up.device.type == "cpu":
        return [torch.relu(x @ up) @ down for x in batches]
    for x in batches:
        for part in x.split(4096):
            part @ up @ down
    return [torch.empty(len(x), down.shape[1], device=x.device) for x in batches]
