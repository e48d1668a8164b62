# float16 without a GradScaler, which no run of the tests is long enough to show: earns 0
def repair_model(script):
    def activation(x):
        return F.gelu(x, approximate="tanh")

    def forward(model, numbers, labels):
        with torch.autocast(numbers.device.type, dtype=torch.float16):
            logits = model(numbers)
            return logits, cost(logits, labels)

    return script.replace(activation=activation, forward=forward)
