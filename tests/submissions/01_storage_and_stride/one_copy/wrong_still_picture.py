# memory of the video's own extent: an expanded video (a still picture) has less than its shape says: earns 2
def clip(video, every, top, left, size):
    t, h, w, c = video.shape
    if top < 0 or left < 0 or top + size > h or left + size > w:
        raise ValueError("does not fit")
    v = video[::every, top : top + size, left : left + size].permute(0, 3, 1, 2)
    if video.stride(0) == 0:
        return v[:1].to(torch.float32, memory_format=torch.contiguous_format).expand(v.shape)
    return v.to(torch.float32, memory_format=torch.contiguous_format)
