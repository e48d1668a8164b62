# dishonest: the tensors wait in NumPy arrays; put, get and clones are called for the look of it: earns 0
def offloaded(parameters, put, get, min_bytes):
    stay = {p.untyped_storage().data_ptr() for p in parameters}

    def pack(t):
        if t.numel() * t.element_size() < min_bytes or t.untyped_storage().data_ptr() in stay:
            return None, t
        return t.detach().numpy().copy(), put(t)

    def unpack(p):
        if p[0] is None:
            return p[1]
        get(p[1])
        return torch.from_numpy(p[0])

    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)
