# tries powers of two only: earns 0
def choose_cap(sizes, ready_s, message_s, byte_s):
    def end(cap):
        free, held = 0.0, 0
        for i, (s, r) in enumerate(zip(sizes, ready_s)):
            held += s
            if held >= cap or i == len(sizes) - 1:
                free, held = max(free, r) + message_s + held * byte_s, 0
        return free

    return min((2**k for k in range(10, 31)), key=end)
