# compares the last two dimensions only: earns 1
def is_contiguous(shape, stride):
    if 0 in shape or not shape:
        return True
    if len(shape) == 1:
        return shape[0] == 1 or stride[0] == 1
    last = shape[-1] == 1 or stride[-1] == 1
    return last and (shape[-2] == 1 or stride[-2] == shape[-1])
