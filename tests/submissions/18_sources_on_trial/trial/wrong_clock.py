# a clock in the place of the counter: earns 0
import time


def trial(before, after, nothing, sizes):
    def seconds(step, n):
        step(n)
        began = time.perf_counter()
        step(n)
        return time.perf_counter() - began

    holds = [n for n in sizes if seconds(after, n) <= seconds(before, n) / 2]
    return "confirmed" if len(holds) == len(sizes) else "partly" if holds else "refuted", holds
