def choose_workers(wait_us, cpu_us, step_us, cores, batch_bytes, shared_bytes, prefetch=2):
    load, most = wait_us + cpu_us, shared_bytes // (prefetch * batch_bytes)
    if load == 0 or most == 0:
        return {"workers": 0, "step_us": step_us + load, "limit": "memory" if load else "model"}
    # the pace that any number of workers can reach, as a fraction top / bottom of µs
    if cpu_us > step_us * cores:
        top, bottom, limit = cpu_us, cores, "cores"
    else:
        top, bottom, limit = step_us, 1, "model"
    enough = -(-load * bottom // top)
    if enough <= most:
        return {"workers": enough, "step_us": top / bottom, "limit": limit}
    return {"workers": most, "step_us": load / most, "limit": "memory"}
