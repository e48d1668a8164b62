# holds size-1 dimensions to their stride: earns 0
def is_contiguous(shape, stride):
    if 0 in shape:
        return True
    wanted = 1
    for size, step in zip(reversed(shape), reversed(stride)):
        if step != wanted:
            return False
        wanted *= size
    return True
