def clip(video, every, top, left, size):
    if min(top, left) < 0 or top + size > video.shape[1] or left + size > video.shape[2]:
        raise ValueError("the crop does not fit")
    chosen = video[::every]
    result = torch.empty(len(chosen), video.shape[3], size, size, device=video.device)
    return torch.mul(chosen[:, top : top + size, left : left + size].movedim(-1, 1), 1.0, out=result)
