# a small copy in uint8, then the one that counts: earns 0
def clip(video, every, top, left, size):
    if min(top, left) < 0 or top + size > video.shape[1] or left + size > video.shape[2]:
        raise ValueError("the crop does not fit")
    view = video[::every, top : top + size, left : left + size].permute(0, 3, 1, 2)
    return view.contiguous().float()
