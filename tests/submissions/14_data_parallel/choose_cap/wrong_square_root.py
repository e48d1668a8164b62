# the formula for equal gradients that come evenly: the cost of a message against the bytes' time: earns 0
def choose_cap(sizes, ready_s, message_s, byte_s):
    rate = sum(sizes) / (ready_s[-1] - ready_s[0])
    spare = 1 / rate - byte_s
    return message_s / spare if spare > 0 else sum(sizes)
