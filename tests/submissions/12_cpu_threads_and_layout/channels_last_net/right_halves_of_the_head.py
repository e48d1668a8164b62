def channels_last_net(weights):
    last = torch.channels_last
    stem = weights["stem"].contiguous(memory_format=last)
    blocks = [(b["mix"][b["order"]].contiguous(memory_format=last), b["point"]) for b in weights["blocks"]]
    size = len(stem)
    columns = weights["head"].unflatten(1, (2 * size, -1))
    heads = [h.transpose(1, 2).flatten(1) for h in (columns[:, :size], columns[:, size:])]

    def forward(x):
        x = x.contiguous(memory_format=last)
        x = F.conv2d(x, stem, stride=2, padding=1).relu()
        for mix, point in blocks:
            y = F.conv2d(x, mix, padding=1).permute(0, 2, 3, 1)
            y = F.linear(F.layer_norm(y, y.shape[3:]), point).permute(0, 3, 1, 2)
            x = x + y * y.mean((2, 3), keepdim=True).sigmoid()
        mean, most = (pool(x, 2).permute(0, 2, 3, 1).flatten(1) for pool in (F.avg_pool2d, F.max_pool2d))
        return mean @ heads[0].T + most @ heads[1].T

    return forward
