import itertools


def choose_cap(sizes, ready_s, message_s, byte_s):
    total = [0, *itertools.accumulate(sizes)]
    best = None
    for i in range(len(total)):
        for j in range(i):
            cap, t, held = total[i] - total[j], 0.0, 0
            for k, s in enumerate(sizes):
                held += s
                if held >= cap or k + 1 == len(sizes):
                    t = (ready_s[k] if ready_s[k] > t else t) + message_s + byte_s * held
                    held = 0
            if best is None or t < best[0]:
                best = (t, cap)
    return best[1]
