# of equally fast numbers of threads the largest: earns 0
def best_threads(parts, cores, copies, wake_ns, each_ns):
    def time(n, wake, each):
        return sum(
            ns if not splits or size <= 32_768 or n == 1
            else wake + each * n + ns * math.ceil(size / min(n, math.ceil(size / 32_768))) / size
            for size, ns, splits in parts
        )  # fmt: skip

    times = [(time(n, wake_ns, each_ns), -n) for n in range(1, cores + 1)]
    least, best = min(times)
    rate, most = max((min(copies, cores // -n) / t, -n) for t, n in times)
    free = time(10**9, 0, 0)
    return {
        "threads": -best,
        "speedup": times[0][0] / least,
        "bound": times[0][0] / free,
        "processes": min(copies, cores // most),
        "each": most,
    }
