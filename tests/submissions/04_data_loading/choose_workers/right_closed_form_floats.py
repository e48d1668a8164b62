def choose_workers(wait_us, cpu_us, step_us, cores, batch_bytes, shared_bytes, prefetch=2):
    load, fit = wait_us + cpu_us, shared_bytes // (prefetch * batch_bytes)
    pace = max(step_us, cpu_us / cores)
    if not load:
        return {"workers": 0, "step_us": step_us, "limit": "model"}
    w = min(math.ceil(load / pace), fit)
    t = max(pace, load / w) if w else step_us + load
    limit = "memory" if t > pace else "model" if t == step_us else "cores"
    return {"workers": w, "step_us": t, "limit": limit}
