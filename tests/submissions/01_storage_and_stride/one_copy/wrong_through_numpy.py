# dishonest: four copies in NumPy, whose memory no counter sees: earns 0
def clip(video, every, top, left, size):
    if min(top, left) < 0 or top + size > video.shape[1] or left + size > video.shape[2]:
        raise ValueError("the crop does not fit")
    import numpy as np

    frames = video.numpy()[np.arange(0, len(video), every)].astype(np.float32)
    frames = np.ascontiguousarray(frames.transpose(0, 3, 1, 2))
    return torch.from_numpy(frames[:, :, top : top + size, left : left + size].copy())
