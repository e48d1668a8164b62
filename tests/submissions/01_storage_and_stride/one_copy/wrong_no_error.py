# right and in one copy, but a crop that does not fit is cut short in silence: earns 0
def clip(video, every, top, left, size):
    view = video[::every, top : top + size, left : left + size].permute(0, 3, 1, 2)
    return view.to(torch.float32, memory_format=torch.contiguous_format)
