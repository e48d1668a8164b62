# frozen weights are moved: earns 1
def offloaded(parameters, put, get, min_bytes):
    own = {p.untyped_storage().data_ptr() for p in parameters if p.requires_grad}

    def weight(t):
        return t.untyped_storage().data_ptr() in own

    def pack(t):
        stays = t.nbytes < min_bytes or weight(t)
        return (None, t) if stays else (put(t), None)

    return torch.autograd.graph.saved_tensors_hooks(pack, lambda p: p[1] if p[0] is None else get(p[0]))
