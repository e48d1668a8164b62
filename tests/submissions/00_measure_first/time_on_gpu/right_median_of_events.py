import statistics


def time_on_gpu(gpu, work, repeats=10):
    if repeats < 1:
        raise ValueError("at least one")
    for _ in range(3):
        work()
    marks = [gpu.Event(enable_timing=True) for _ in range(repeats + 1)]
    marks[0].record()
    for mark in marks[1:]:
        work()
        mark.record()
    gpu.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in zip(marks, marks[1:])) / 1000
