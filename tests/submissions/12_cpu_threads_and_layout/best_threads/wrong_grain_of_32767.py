# splits a part of exactly 32,768 elements: earns 0
def best_threads(parts, cores, copies, wake_ns, each_ns):
    def time(n, wake, each):
        whole = 0.0
        for size, ns, splits in parts:
            if splits and size >= 32_768 and n > 1:
                chunks = min(n, size // 32_768 + 1)
                whole += wake + each * n + ns * -(-size // chunks) / size
            else:
                whole += ns
        return whole

    times = [time(n, wake_ns, each_ns) for n in range(1, cores + 1)]
    best = times.index(min(times)) + 1
    rates = [min(copies, cores // n) / t for n, t in enumerate(times, 1)]
    each = rates.index(max(rates)) + 1
    bound = times[0] / time(10**9, 0, 0)
    return {"threads": best, "speedup": times[0] / times[best - 1], "bound": bound,
            "processes": min(copies, cores // each), "each": each}  # fmt: skip
