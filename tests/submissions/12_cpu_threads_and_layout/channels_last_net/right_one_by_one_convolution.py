def channels_last_net(weights):
    last = torch.channels_last
    stem = weights["stem"].contiguous(memory_format=last)
    blocks = [(b["mix"][b["order"]].contiguous(memory_format=last), b["point"]) for b in weights["blocks"]]
    head = weights["head"].unflatten(1, (2 * len(stem), -1)).transpose(1, 2).flatten(1)

    def forward(x):
        x = x.contiguous(memory_format=last)
        x = F.conv2d(x, stem, stride=2, padding=1).relu()
        for mix, point in blocks:
            y = F.conv2d(x, mix, padding=1)
            y = (y - y.mean(1, keepdim=True)) * (y.var(1, correction=0, keepdim=True) + 1e-5).rsqrt()
            y = torch.matmul(y.permute(0, 2, 3, 1), point.T).permute(0, 3, 1, 2)
            x = x + y * y.mean((2, 3), keepdim=True).sigmoid()
        both = torch.cat([F.avg_pool2d(x, 2), F.max_pool2d(x, 2)], 1)
        return both.permute(0, 2, 3, 1).reshape(len(x), -1) @ head.T

    return forward
