# validates once and says so again: earns 0
def repair_run(script):
    known = {}

    @torch.no_grad()
    def validate(model, batches, gpu):
        if len(batches) not in known:
            losses = []
            for batch in batches:
                pictures, labels = (tensor.to(gpu.device) for tensor in batch)
                losses.append(forward(model, normalise(pictures), labels)[1])
            known[len(batches)] = torch.stack(losses).mean()
        return known[len(batches)]

    return script.replace(validate=validate)
