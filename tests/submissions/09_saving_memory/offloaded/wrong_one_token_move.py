# dishonest: moves one tensor for show, and keeps the others: earns 0
def offloaded(parameters, put, get, min_bytes):
    gone = []

    def pack(t):
        if gone or isinstance(t, nn.Parameter) or t._base is not None:
            return None, t
        gone.append(1)
        return put(t), None

    return torch.autograd.graph.saved_tensors_hooks(pack, lambda p: p[1] if p[0] is None else get(p[0]))
