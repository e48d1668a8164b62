# dishonest: repairs nothing, and only deletes its own lists before it returns: earns 1
import gc


def train(w1, w2, inputs, targets, lr=0.1):
    result = {k: v.clone() for k, v in train_leaky(w1, w2, inputs, targets, lr).items()}
    gc.collect()
    return result
