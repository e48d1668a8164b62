# from each size to the next that changes a cut
def choose_cap(sizes, ready_s, message_s, byte_s):
    def run(cap):
        t, held, next_cap = 0.0, 0, float("inf")
        for k, s in enumerate(sizes):
            held += s
            if held >= cap or k == len(sizes) - 1:
                if held >= cap:
                    next_cap = min(next_cap, held + 1)
                t, held = max(t, ready_s[k]) + message_s + byte_s * held, 0
        return t, next_cap

    best, cap = (float("inf"), 1), 1
    while cap != float("inf"):
        t, following = run(cap)
        best, cap = min(best, (t, cap)), following
    return best[1]
