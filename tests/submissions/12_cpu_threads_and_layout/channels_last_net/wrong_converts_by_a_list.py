# the head's input is converted after all, by a list's add_, which writes in place and returns nothing: earns 0
def channels_last_net(weights):
    last = torch.channels_last
    stem = weights["stem"].contiguous(memory_format=last)
    blocks = [(b["mix"][b["order"]].contiguous(memory_format=last), b["point"]) for b in weights["blocks"]]

    def forward(x):
        x = x.contiguous(memory_format=last)
        x = F.conv2d(x, stem, stride=2, padding=1).relu()
        for mix, point in blocks:
            y = F.conv2d(x, mix, padding=1).permute(0, 2, 3, 1)
            y = F.linear(F.layer_norm(y, y.shape[3:]), point).permute(0, 3, 1, 2)
            x = x + y * y.mean((2, 3), keepdim=True).sigmoid()
        both = torch.cat([F.avg_pool2d(x, 2), F.max_pool2d(x, 2)], 1)
        flat = torch.zeros(both.shape)
        torch._foreach_add_([flat], [both])
        return F.linear(flat.flatten(1), weights["head"])

    return forward
