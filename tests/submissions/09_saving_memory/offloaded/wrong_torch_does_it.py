# torch's own hook: moves all, and by other means than put and get: earns 0
def offloaded(parameters, put, get, min_bytes):
    return torch.autograd.graph.save_on_cpu()
