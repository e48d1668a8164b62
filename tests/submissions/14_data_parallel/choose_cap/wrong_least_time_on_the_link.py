# makes the sending short instead of early: earns 0
def choose_cap(sizes, ready_s, message_s, byte_s):
    return sum(sizes)
