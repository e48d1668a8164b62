def clip(video, every, top, left, size):
    if min(top, left) < 0 or top + size > video.shape[1] or left + size > video.shape[2]:
        raise ValueError("the crop does not fit")
    view = video.permute(0, 3, 1, 2)[::every, :, top : top + size, left : left + size]
    result = torch.empty(tuple(view.shape), device=video.device)
    result[...] = view
    return result
