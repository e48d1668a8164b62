# puts weights and small things too, as save_on_cpu does: earns 0
def offloaded(parameters, put, get, min_bytes):
    return torch.autograd.graph.saved_tensors_hooks(lambda t: put(t), lambda handle: get(handle))
