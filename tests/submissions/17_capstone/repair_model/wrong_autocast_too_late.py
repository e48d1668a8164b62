# autocast around the loss alone: earns 0
def repair_model(script):
    def forward(model, numbers, labels):
        logits = model(numbers)
        with torch.autocast(numbers.device.type, dtype=torch.bfloat16):
            return logits, cost(logits, labels)

    return script.replace(forward=forward)
