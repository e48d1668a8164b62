def repair_run(script):
    def log(record, loss, right, length):
        record.rows.append(torch.stack([loss, right, length]).tolist())

    def count_right(logits, labels):
        return (logits.argmax(-1) == labels).sum()

    def remember(record, logits):
        record.guesses.append(logits.argmax(-1).to(torch.uint8))

    def held_out(files, size, gpu):
        rows = list(range(len(files) - len(files) // 4, len(files)))
        batches = [rows[i : i + size.batch] for i in range(0, len(rows), size.batch)]
        return [[tensor.to(gpu.device) for tensor in fetch(files, batch)] for batch in batches]

    @torch.no_grad()
    def validate(model, batches, gpu):
        return torch.stack([forward(model, normalise(x), labels)[1] for x, labels in batches]).mean()

    def to_host(module):
        return torch.cat([p.detach().flatten() for p in module.parameters()]).cpu()

    def save(record, step, model, averaged):
        if step % SAVE_EVERY == 0:
            record.saved = {"step": step, "model": to_host(model), "averaged": to_host(averaged)}

    return script.replace(
        log=log,
        count_right=count_right,
        remember=remember,
        held_out=held_out,
        validate=validate,
        to_host=to_host,
        save=save,
    )
