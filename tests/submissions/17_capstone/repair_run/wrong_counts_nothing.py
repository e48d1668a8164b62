# counts no right answer: earns 0
def repair_run(script):
    def count_right(logits, labels):
        return torch.zeros((), device=logits.device)

    def save(record, step, model, averaged):
        if step % SAVE_EVERY == 0:
            record.saved = {"step": step, "model": to_host(model), "averaged": to_host(averaged)}

    return script.replace(count_right=count_right, save=save)
