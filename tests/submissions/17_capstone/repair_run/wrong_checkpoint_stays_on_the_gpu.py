# the checkpoint stays on the GPU: earns 0
def repair_run(script):
    def to_host(module):
        return torch.cat([p.detach().flatten() for p in module.parameters()])

    return script.replace(to_host=to_host)
