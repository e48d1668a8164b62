# shared memory for one batch a worker, without prefetch_factor: earns 0
def choose_workers(wait_us, cpu_us, step_us, cores, batch_bytes, shared_bytes, prefetch=2):
    def t(w):
        return step_us + wait_us + cpu_us if w == 0 else max(step_us, (wait_us + cpu_us) / w, cpu_us / cores)

    most = shared_bytes // batch_bytes
    w = min(range(min(most, math.ceil((wait_us + cpu_us) / step_us)) + 1), key=t)
    limit = "model" if t(w) == step_us else "cores" if w and t(w) == cpu_us / cores else "memory"
    return {"workers": w, "step_us": t(w), "limit": limit}
