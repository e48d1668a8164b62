# a copy for each frame, then one for the batch: earns 0
def clip(video, every, top, left, size):
    if min(top, left) < 0 or top + size > video.shape[1] or left + size > video.shape[2]:
        raise ValueError("the crop does not fit")
    frames = []
    for frame in video[::every]:
        frames.append(frame[top : top + size, left : left + size].permute(2, 0, 1).float())
    return torch.stack(frames)
