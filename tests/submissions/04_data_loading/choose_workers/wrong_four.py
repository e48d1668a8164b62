# four for each GPU, as a source has it: earns 0
def choose_workers(wait_us, cpu_us, step_us, cores, batch_bytes, shared_bytes, prefetch=2):
    return {"workers": 4, "step_us": max(step_us, (wait_us + cpu_us) / 4, cpu_us / cores), "limit": "model"}
