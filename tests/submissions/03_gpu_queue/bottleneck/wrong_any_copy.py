# any copy to the GPU is the limit, any copy back is a sync, however small: earns 0
def bottleneck(t):
    if not t.has_gpu:
        return "no GPU"
    if shares(t)[0] > 0.82:
        return "GPU"
    names = [row["name"] for row in t.rows("copy")]
    if any("HtoD" in name for name in names):
        return "copies"
    return "syncs" if any("DtoH" in name for name in names) else "CPU"
