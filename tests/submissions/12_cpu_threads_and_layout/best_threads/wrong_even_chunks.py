# chunks of equal length, as if elements could be cut: earns 0
def best_threads(parts, cores, copies, wake_ns, each_ns):
    def total(n, wake, each):
        time = 0.0
        for size, ns, splits in parts:
            if not splits or size <= 32_768 or n == 1:
                time += ns
            else:
                k = min(n, math.ceil(size / 32_768))
                time += wake + each * n + ns / k
        return time

    times = {n: total(n, wake_ns, each_ns) for n in range(1, cores + 1)}
    best = min(times, key=times.get)
    split = max(times, key=lambda n: min(copies, cores // n) / times[n])
    bound = times[1] / total(10**9, 0.0, 0.0)
    return {"threads": best, "speedup": times[1] / times[best], "bound": bound, "processes": min(copies, cores // split), "each": split}
