# right, but its running sums lie in the caller's list: earns 0
import itertools


def choose_cap(sizes, ready_s, message_s, byte_s):
    own = [*sizes]
    for i in range(1, len(sizes)):
        sizes[i] += sizes[i - 1]
    total = [0, *sizes]
    best = None
    for i in range(len(total)):
        for j in range(i):
            cap, t, held = total[i] - total[j], 0.0, 0
            for k, s in enumerate(own):
                held += s
                if held >= cap or k + 1 == len(sizes):
                    t = (ready_s[k] if ready_s[k] > t else t) + message_s + byte_s * held
                    held = 0
            if best is None or t < best[0]:
                best = (t, cap)
    return best[1]
