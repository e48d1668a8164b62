# what is kept of the logits, and no more: earns 1
def repair_run(script):
    def remember(record, logits):
        record.guesses.append(logits.argmax(-1).to(torch.uint8))

    return script.replace(remember=remember)
