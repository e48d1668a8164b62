# asks the storage for its bytes, of which a view has fewer: earns 1
def offloaded(parameters, put, get, min_bytes):
    own = {p.untyped_storage().data_ptr() for p in parameters}

    def pack(t):
        if t.untyped_storage().nbytes() >= min_bytes and t.untyped_storage().data_ptr() not in own:
            return put(t), None
        return None, t

    return torch.autograd.graph.saved_tensors_hooks(pack, lambda p: get(p[0]) if p[1] is None else p[1])
