# the hooks hold the tensor beside its copy: moved, and nothing freed: earns 0
def offloaded(parameters, put, get, min_bytes):
    stay = {p.untyped_storage().data_ptr() for p in parameters}

    def pack(t):
        if t.numel() * t.element_size() < min_bytes or t.untyped_storage().data_ptr() in stay:
            return None, t
        return put(t), t

    return torch.autograd.graph.saved_tensors_hooks(pack, lambda p: p[1] if p[0] is None else get(p[0]))
