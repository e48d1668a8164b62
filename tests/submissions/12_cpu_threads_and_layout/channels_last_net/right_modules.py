def channels_last_net(weights):
    last = torch.channels_last
    stem = weights["stem"].contiguous(memory_format=last)
    blocks = []
    for b in weights["blocks"]:
        size = len(b["point"])
        mix = torch.nn.Conv2d(size, size, 3, padding=1, bias=False).to(memory_format=last)
        mix.weight.copy_(b["mix"].index_select(0, b["order"]))
        point = torch.nn.Linear(size, size, bias=False)
        point.weight.copy_(b["point"])
        blocks.append((mix, point))
    head = weights["head"].unflatten(1, (2 * len(stem), -1)).transpose(1, 2).flatten(1)

    def forward(x):
        x = x.contiguous(memory_format=last)
        x = F.conv2d(x, stem, stride=2, padding=1).relu()
        for mix, point in blocks:
            y = mix(x).permute(0, 2, 3, 1)
            y = point(torch.nn.functional.layer_norm(y, (y.shape[-1],))).movedim(-1, 1)
            x = x + y * y.mean((2, 3), keepdim=True).sigmoid()
        both = torch.cat([F.avg_pool2d(x, 2), F.max_pool2d(x, 2)], 1)
        return F.linear(both.permute(0, 2, 3, 1).flatten(1), head)

    return forward
