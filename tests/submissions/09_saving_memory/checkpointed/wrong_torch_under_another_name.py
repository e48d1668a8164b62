# dishonest: torch's own source, run under another file name: earns 0
import inspect
import sys

theirs = {"__name__": "mine"}
exec(compile(inspect.getsource(sys.modules["torch.utils.checkpoint"]), "mine.py", "exec"), theirs)


def checkpointed(fn, *inputs):
    return theirs["checkpoint"](fn, *inputs, use_reentrant=False)
