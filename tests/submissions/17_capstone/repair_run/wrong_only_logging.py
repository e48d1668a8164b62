# the numbers of each step, and the checkpoint waits as before: earns 0
def repair_run(script):
    def log(record, loss, right, length):
        record.waiting.append(torch.stack([loss, right, length]))
        if len(record.waiting) == LOG_EVERY:
            record.rows += torch.stack(record.waiting).tolist()
            record.waiting.clear()

    def count_right(logits, labels):
        return (logits.argmax(-1) == labels).sum()

    return script.replace(log=log, count_right=count_right)
