# no row is ever read: all wait in record.waiting: earns 0
def repair_run(script):
    def count_right(logits, labels):
        return (logits.argmax(-1) == labels).sum()

    def log(record, loss, right, length):
        record.waiting.append(torch.stack([loss, right, length]))

    def remember(record, logits):
        record.guesses.append(logits.argmax(-1).to(torch.uint8))

    def held_out(files, size, gpu):
        rows = range(len(files) - len(files) // 4, len(files))
        batches = [list(rows[i : i + size.batch]) for i in range(0, len(rows), size.batch)]
        return [[tensor.to(gpu.device) for tensor in fetch(files, batch)] for batch in batches]

    @torch.no_grad()
    def validate(model, batches, gpu):
        losses = [forward(model, normalise(pictures), labels)[1] for pictures, labels in batches]
        return torch.stack(losses).mean()

    def to_host(module):
        flat = torch.cat([p.detach().flatten() for p in module.parameters()])
        host = torch.empty(flat.shape, dtype=flat.dtype, pin_memory=flat.device.type != "cpu")
        return host.copy_(flat, non_blocking=True)

    def save(record, step, model, averaged):
        if step % SAVE_EVERY == 0:
            record.saved = {"step": step, "model": to_host(model), "averaged": to_host(averaged)}

    return script.replace(
        count_right=count_right,
        log=log,
        remember=remember,
        held_out=held_out,
        validate=validate,
        to_host=to_host,
        save=save,
    )
