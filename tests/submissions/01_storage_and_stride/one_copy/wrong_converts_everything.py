# one copy of all frames, and the crop a view of it: earns 0
def clip(video, every, top, left, size):
    if min(top, left) < 0 or top + size > video.shape[1] or left + size > video.shape[2]:
        raise ValueError("the crop does not fit")
    frames = video.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
    return frames[::every, :, top : top + size, left : left + size]
