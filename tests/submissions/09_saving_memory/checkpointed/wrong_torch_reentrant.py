# dishonest: the Function inside torch's older way, fetched by importlib: earns 0
import importlib

theirs = importlib.import_module("torch.utils." + "check" + "point")


def checkpointed(fn, *inputs):
    return theirs.CheckpointFunction.apply(fn, True, *inputs)
