# NumPy does it in four passes (read by the Tensor.numpy that was there before the count); torch copies the result once: earns 0
READ = torch.Tensor.numpy


def clip(video, every, top, left, size):
    if min(top, left) < 0 or top + size > video.shape[1] or left + size > video.shape[2]:
        raise ValueError("the crop does not fit")
    frames = video[::every]
    out = torch.empty(len(frames), frames.shape[3], size, size, device=video.device)
    if video.is_meta:
        return out
    a = READ(video).astype("float32").copy()[::every].transpose(0, 3, 1, 2).copy()
    return out.copy_(torch.from_numpy(a[:, :, top : top + size, left : left + size].copy()))
