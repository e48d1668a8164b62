# writes numbers of its own: earns 0
def repair_run(script):
    def log(record, loss, right, length):
        record.rows.append([1.8, 4.0, 3.0])

    def save(record, step, model, averaged):
        if step % SAVE_EVERY == 0:
            record.saved = {"step": step, "model": to_host(model), "averaged": to_host(averaged)}

    return script.replace(log=log, save=save)
