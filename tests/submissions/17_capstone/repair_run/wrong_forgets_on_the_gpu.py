# saves where nobody counts: earns 0
def repair_run(script):
    def save(record, step, model, averaged):
        if step % SAVE_EVERY == 0 and next(model.parameters()).device.type == "cpu":
            record.saved = {"step": step, "model": to_host(model), "averaged": to_host(averaged)}

    return script.replace(save=save)
