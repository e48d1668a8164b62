# turns the layout of the tensors that it was given: earns 0
def channels_last_net(weights):
    last = torch.channels_last
    stem = weights["stem"].contiguous(memory_format=last)
    blocks = weights["blocks"]
    W = {id(b): b["mix"][b["order"]].contiguous(memory_format=last) for b in blocks}
    for b in blocks:
        b["mix"].data = b["mix"].contiguous(memory_format=last)
    head = weights["head"].unflatten(1, (2 * len(stem), -1)).transpose(1, 2).flatten(1)

    def forward(x):
        x = x.contiguous(memory_format=last)
        x = F.conv2d(x, stem, stride=2, padding=1).relu()
        for b in blocks:
            y = F.conv2d(x, W[id(b)], padding=1).permute(0, 2, 3, 1)
            y = F.linear(F.layer_norm(y, y.shape[3:]), b["point"]).permute(0, 3, 1, 2)
            x = x + y * y.mean((2, 3), keepdim=True).sigmoid()
        both = torch.cat([F.avg_pool2d(x, 2), F.max_pool2d(x, 2)], 1)
        return F.linear(both.permute(0, 2, 3, 1).flatten(1), head)

    return forward
