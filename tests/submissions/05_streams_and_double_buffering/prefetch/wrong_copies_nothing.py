# dishonest, makes tensors of the right shape on the device and copies nothing: earns 0
def prefetch(gpu, batches):
    for batch in batches:
        yield torch.empty(batch.shape, dtype=batch.dtype, device=gpu.device)
