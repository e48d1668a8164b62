# knows a weight only as itself, and not the transposed view that is saved: earns 0
def offloaded(parameters, put, get, min_bytes):
    ids = {id(p) for p in parameters}

    def pack(t):
        stays = id(t) in ids or t.nbytes < min_bytes
        return (None, t) if stays else (put(t), None)

    return torch.autograd.graph.saved_tensors_hooks(pack, lambda p: p[1] if p[0] is None else get(p[0]))
