# hands the question to trace.classify: earns 0
def bottleneck(t):
    word = trace.classify(t).bottleneck
    return {"GPU-bound": "GPU", "sync-bound": "syncs", "copy-bound": "copies", "CPU only": "no GPU"}.get(word, "CPU")
