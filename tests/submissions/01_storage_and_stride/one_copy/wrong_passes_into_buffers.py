# three passes, two of them by multiplications into buffers that are kept: earns 0
first, second = torch.zeros(10**6), torch.zeros(10**6)


def clip(video, every, top, left, size):
    if min(top, left) < 0 or top + size > video.shape[1] or left + size > video.shape[2]:
        raise ValueError("the crop does not fit")
    frames = video[::every]
    if frames.is_meta:
        return torch.empty(len(frames), frames.shape[3], size, size, device=frames.device)
    once = torch.mul(frames, 1.0, out=first[: frames.numel()].view(frames.shape))
    twice = torch.mul(once, 1.0, out=second[: frames.numel()].view(frames.shape))
    return twice.permute(0, 3, 1, 2)[:, :, top : top + size, left : left + size].contiguous()
