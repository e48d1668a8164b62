# makes its result on the CPU, wherever the video is: earns 0
def clip(video, every, top, left, size):
    if min(top, left) < 0 or top + size > video.shape[1] or left + size > video.shape[2]:
        raise ValueError("the crop does not fit")
    view = video[::every].narrow(1, top, size).narrow(2, left, size).movedim(3, 1)
    return torch.add(view, 0, out=torch.empty(view.shape))
