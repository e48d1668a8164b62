# float16 without a GradScaler, which no run of the tests is long enough to show: earns 0
def repair_model(script):
    def normalise(pictures):
        return pictures.float() / 127.5 - 1

    @torch.compile
    def augment(pictures, mirrored):
        numbers = normalise(pictures)
        return torch.where(mirrored[:, None, None, None], numbers.flip(-1), numbers)

    def activation(x):
        return F.gelu(x, approximate="tanh")

    def split_heads(qkv, heads):
        return [part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in qkv.chunk(3, dim=-1)]

    def forward(model, numbers, labels):
        with torch.autocast(numbers.device.type, dtype=torch.float16):
            logits = model(numbers)
            return logits, cost(logits, labels)

    return script.replace(
        normalise=normalise, augment=augment, activation=activation, split_heads=split_heads, forward=forward
    )
