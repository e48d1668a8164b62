# reads the head as if images were square: earns 1
def channels_last_net(weights):
    last = torch.channels_last
    stem = weights["stem"].contiguous(memory_format=last)
    blocks = [(b["mix"][b["order"]].contiguous(memory_format=last), b["point"]) for b in weights["blocks"]]
    classes, columns = weights["head"].shape
    side = math.isqrt(columns // (2 * len(stem)))
    head = weights["head"].view(classes, 2 * len(stem), side, side).permute(0, 2, 3, 1).flatten(1)

    def forward(x):
        x = x.contiguous(memory_format=last)
        x = F.conv2d(x, stem, stride=2, padding=1).relu()
        for mix, point in blocks:
            y = F.conv2d(x, mix, padding=1).permute(0, 2, 3, 1)
            y = F.linear(F.layer_norm(y, y.shape[3:]), point).permute(0, 3, 1, 2)
            x = x + y * y.mean((2, 3), keepdim=True).sigmoid()
        both = torch.cat([F.avg_pool2d(x, 2), F.max_pool2d(x, 2)], 1)
        return F.linear(both.permute(0, 2, 3, 1).flatten(1), head)

    return forward
