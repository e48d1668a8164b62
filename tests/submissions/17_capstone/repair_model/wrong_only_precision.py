# autocast alone: earns 0
def repair_model(script):
    def forward(model, numbers, labels):
        with torch.autocast(numbers.device.type, dtype=torch.bfloat16):
            logits = model(numbers)
            return logits, cost(logits, labels)

    return script.replace(forward=forward)
