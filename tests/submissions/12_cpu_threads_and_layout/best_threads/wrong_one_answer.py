# right, but every call returns the same dict: earns 1
plan = {}
from fractions import Fraction


def largest(size, n):
    grains = -(-size // 32_768)
    k = min(n, grains) if n else grains
    return -(-size // k)


def best_threads(parts, cores, copies, wake_ns, each_ns):
    serial = sum(Fraction(ns) for size, ns, splits in parts if not splits or size <= 32_768)
    split = [(size, Fraction(ns)) for size, ns, splits in parts if splits and size > 32_768]
    one = serial + sum(ns for _, ns in split)
    table = [one]
    for n in range(2, cores + 1):
        region = Fraction(wake_ns) + n * Fraction(each_ns)
        table.append(serial + sum(region + ns * largest(size, n) / size for size, ns in split))
    best = table.index(min(table)) + 1
    rates = [min(copies, cores // n) / t for n, t in enumerate(table, 1)]
    each = rates.index(max(rates)) + 1
    free = serial + sum(ns * largest(size, None) / size for size, ns in split)
    plan.update({
        "threads": best,
        "speedup": float(one / table[best - 1]),
        "bound": float(one / free),
        "processes": min(copies, cores // each),
        "each": each,
    })
    return plan
