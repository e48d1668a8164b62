# all batches in one product: earns 0
def encode(batches, up, down):
    out = (torch.cat(batches) @ up).relu_() @ down
    return list(out.split([len(x) for x in batches]))
