# a hundred evenly spaced sizes: earns 1
# 100 sizes, evenly spaced
def choose_cap(sizes, ready_s, message_s, byte_s):
    def end(cap):
        free, held = 0.0, 0
        for i, (s, r) in enumerate(zip(sizes, ready_s)):
            held += s
            if held >= cap or i == len(sizes) - 1:
                free, held = max(free, r) + message_s + held * byte_s, 0
        return free

    caps = [sum(sizes) * k / 100 for k in range(1, 101)]
    return min(caps, key=end)
