# the given code as it is: earns 0
def clip(video, every, top, left, size):
    if min(top, left) < 0 or top + size > video.shape[1] or left + size > video.shape[2]:
        raise ValueError("the crop does not fit")
    frames = video[torch.arange(0, len(video), every)]
    frames = frames.float()
    frames = frames.permute(0, 3, 1, 2).contiguous()
    return frames[:, :, top : top + size, left : left + size].contiguous()
