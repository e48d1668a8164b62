@torch.compile(dynamic=True)
def turned(pictures, mirrored):
    numbers = pictures.float().div(127.5).sub(1)
    mask = mirrored.view(-1, 1, 1, 1)
    return torch.where(mask, torch.flip(numbers, (3,)), numbers)


class Smooth(nn.Module):
    def __init__(self):
        super().__init__()
        self.gelu = nn.GELU(approximate="tanh")

    def forward(self, x):
        return self.gelu(x)


def repair_model(script):
    smooth = Smooth()

    def split_heads(qkv, heads):
        return qkv.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)

    def places(maps):
        return maps.flatten(2).mT

    def forward(model, numbers, labels):
        with torch.autocast(device_type=numbers.device.type, dtype=torch.bfloat16):
            logits = model(numbers)
            losses = -F.log_softmax(logits.float(), -1).gather(1, labels[:, None])
            return logits, losses.mean()

    return script.replace(
        normalise=lambda pictures: torch.add(pictures.float() / 127.5, -1),
        augment=turned,
        activation=lambda x: smooth(x),
        split_heads=split_heads,
        places=places,
        attention=F.scaled_dot_product_attention,
        forward=forward,
    )
