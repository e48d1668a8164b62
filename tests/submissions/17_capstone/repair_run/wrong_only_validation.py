# validation without a graph, from the GPU's memory: earns 1
def repair_run(script):
    def held_out(files, size, gpu):
        rows = list(range(len(files) - len(files) // 4, len(files)))
        batches = [rows[i : i + size.batch] for i in range(0, len(rows), size.batch)]
        return [[tensor.to(gpu.device) for tensor in fetch(files, batch)] for batch in batches]

    @torch.no_grad()
    def validate(model, batches, gpu):
        return torch.stack([forward(model, normalise(x), labels)[1] for x, labels in batches]).mean()

    return script.replace(held_out=held_out, validate=validate)
