import math


def is_contiguous(shape, stride):
    wanted = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    return 0 in shape or all(n == 1 or s == w for n, s, w in zip(shape, stride, wanted))
