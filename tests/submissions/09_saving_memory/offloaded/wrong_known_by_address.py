# puts a tensor once for both, known by its address, which is given again once the tensor has gone: earns 0
def offloaded(parameters, put, get, min_bytes):
    stay = {p.untyped_storage().data_ptr() for p in parameters}
    known = {}

    def pack(t):
        if t.nbytes < min_bytes or t.untyped_storage().data_ptr() in stay:
            return t
        where = t.data_ptr(), t.shape
        if where not in known:
            known[where] = {"handle": put(t), "left": 0, "back": None}
        known[where]["left"] += 1
        return known[where]

    def unpack(box):
        if isinstance(box, torch.Tensor):
            return box
        t = box["back"] = get(box["handle"]) if box["back"] is None else box["back"]
        box["left"] -= 1
        if box["left"] == 0:
            box["back"] = None
        return t

    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)
