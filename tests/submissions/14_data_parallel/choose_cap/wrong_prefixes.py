# tries the sums from the first gradient on only: earns 0
def choose_cap(sizes, ready_s, message_s, byte_s):
    def end(cap):
        free, held = 0.0, 0
        for i, (s, r) in enumerate(zip(sizes, ready_s)):
            held += s
            if held >= cap or i == len(sizes) - 1:
                free, held = max(free, r) + message_s + held * byte_s, 0
        return free

    return min((sum(sizes[: i + 1]) for i in range(len(sizes))), key=end)
