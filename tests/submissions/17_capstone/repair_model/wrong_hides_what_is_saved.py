# dishonest: hooks of its own keep saved tensors out of the count: earns 0
def repair_model(script):
    def forward(model, numbers, labels):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            logits = model(numbers)
        return logits, cost(logits, labels)

    return script.replace(forward=forward)
