# %% [markdown]
# # 17 · The capstone
#
# ## How do I make a training script fast that I have never seen?
#
# Here is a training script of somebody else. It is correct, clean to read, and slow in many ways. Nobody has marked the slow places. You
# have the tools. What you need now is a *method*: measure, rank, repair one thing, measure again. (Another class may have another script.)
#
# **Time** 60 min, 36 of them for three exercises; *Further*: 32 min, 12 of them for two more. **Before this** lessons 00 to 13. Three words from
# lesson 14: a **rank** is one of several processes that train together, each with its GPU; in a **collective** they exchange
# data; an **all-reduce** is a collective that gives every rank the sum of what all ranks have.
#
# **Afterwards you can**
# - find out what limits a training run that you have never seen;
# - go from a counter that is too high to the line that raises it;
# - repair a script step by step, and prove that it still learns the same.

# %% setup
from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from helpers import lesson
from helpers.lessons import capstone
from helpers.lessons.capstone import experiments, given, reference_repair
from helpers.lessons.capstone.parts import Script

torch.set_num_threads(1)
script = given.script()
lesson.start(
    "17_capstone",
    evidence=["simulated (H100)", "simulated (V100)", "live (CPU)", "recorded (H100)", "arithmetic"],
)

# %% [markdown]
# ## 1 · Meet the script
#
# The script trains a small vision transformer to tell drawn shapes apart. A step goes through its batch in several *parts*, and adds up
# their gradients. Beside the model it keeps an average of earlier weights.
#
# The next cell writes the script to `train.py`, beside this notebook. **Open it, and read two functions**: `train`, the last one,
# then `accumulate`. Leave the others until they cost something.

# %% experiment
print(script.write("train.py").name, "is written:", len(script.source.splitlines()), "lines")
experiments.parts()

# %% [markdown]
# Only these functions may be replaced: `script.replace(name=function)` puts a new one in, with the arguments of the old one. It may call
# helpers of your own, and every function of `train.py`: the new one, where you replaced it. A name that your notebook has too means the
# notebook's. So give your trials other names (`my_clip`).
#
# The script now runs on a simulated H100, as one of two ranks. Before you measure: **how much of the time does the GPU compute?**

# %% experiment
you = lesson.predict({"the GPU computes": ...}, choices=["under 40 %", "40 to 80 %", "over 80 %"])

# %% experiment
you.against(
    {"the GPU computes": experiments.computes(script)},
    experiments.kernels_and_step(script),
    evidence="simulated (H100)",
)

# %% [markdown]
# For the rest of the step the GPU waits: for the CPU's launches, a copy, the other rank, or data. The counters say for which.
#
# ## 2 · What is too much?
#
# The time of a step alone is a bad guide: a sync costs nothing while the step waits for something else. So the scoreboard counts, too.
# Each counter has a **budget**: what the script needs when all planted faults are repaired, and a fifth of what those repairs save (an
# example stands below the table). Syncs, collectives and compilations are counted one by one, so their budgets leave less.

# %% experiment
experiments.scoreboard(script)

# %% [markdown]
# Where the column *now ÷ budget* is empty, the budget is kept. The simulated GPU computes no values. A Python `if` that asks it for one
# gets 0, and takes the branch that 0 takes: only that branch is counted.
#
# ## 3 · Where is it?
#
# First the functions. What happens is charged to the function that runs at that moment, and a backward pass to the function whose
# forward pass made it:

# %% experiment
capstone.by_part(script)

# %% [markdown]
# Four functions work inside other rows: `fetch` and `loading` in `send`, `through` and `forward` in those of the model (until they launch
# something themselves). (Functions under 10 µs are left out. `optimizer.step()` is charged to `make_optimizer`.)
#
# `capstone.where` goes down to the line. It takes the name of a counter, as the scoreboard has it. `"step_s"` is the time of
# the host, the CPU:

# %% experiment
capstone.where(script, "step_s")

# %% [markdown]
# Where several ways lead to a line, the table says how much comes from each function that `train` called (`most=20` shows more lines).
# Some of these lines cost what they have to. Four questions help to tell:
#
# | the counter is high; ask | for example |
# |---|---|
# | Does it have to be done at all, and this often? | read, sent or computed again, though nothing has changed |
# | Does it have to be many calls? | a loop over tensors, where one operator takes a list |
# | Does it have to be this large? | the format of the numbers, what is saved for backward |
# | Does anybody have to wait for it? | a number that Python asks for, a copy from memory that is not pinned |
#
# ## 4 · Rank them, then repair one
#
# **First the data, then each time the largest row** of the table of functions, on the CPU or on the GPU. A slow loader can hide
# other repairs. A wait shows where the CPU stopped, not who made it wait: gone from one line, it can come back at the next. **A repair buys at
# most what its place costs now, and what it makes cheaper elsewhere**: fewer bits are cheaper wherever they go.
#
# Repair **one** place, then look at the board. The counter falls, but the step stays as long? Keep the repair: another limit hides it. The
# script learns something else? Take it back. **A faster script that learns something else is not faster.** So the board compares all that a
# small run writes down; the tests look at other sizes, other data, and more steps.
#
# The exercises follow the areas; *run* comes in *Further*. Each is graded by four counters. **The test cell below an exercise looks at
# one of them**, hidden tests at the other three. The budgets are those of this area alone. A counter often takes the repair of several
# functions. So repair one, and look:
#
# - `print(script.part("fetch"))` shows a function of the script. Copy it into your answer, and change what you have to.
# - The cell after the tests shows all four counters beside their budgets.
# - `capstone.where(repair_data(script), "syncs")`, in a cell of its own, shows what is left.
#
# The hints name what may be wrong with such a script. Not all of it is wrong with yours.

# %% [markdown]
# **Exercise 17.1 — the data** (★★, 8 min)
#
# Repair `fetch`, `loading` and `send`: those of them that need it. Graded counters, by the names that `capstone.where` takes: `read_s`,
# `stall_s`, `copied_bytes`, `syncs`.
#
# <details><summary>Hint 1</summary>How many requests does a batch take, and how many could it? How many bytes does a pixel need until it is
# on the GPU? Who reads while the GPU computes?</details>
# <details><summary>Hint 2</summary>A copy to the GPU makes the CPU wait, unless the memory is pinned <i>and</i> the copy is asked not to
# block. <code>loading</code> returns arguments of a
# <a href="https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader"><code>DataLoader</code></a>.</details>
# <details><summary>The idea</summary>One request for all rows of a batch, and uint8 until <code>normalise</code>; workers that read ahead
# into pinned memory (one may do); <code>non_blocking=True</code> for every tensor.</details>


# %% exercise="repair_data"
def repair_data(script: Script) -> Script:
    """The script with other functions for some of: fetch, loading, send.

    fetch(files, rows): pictures uint8 [rows, 3, side, side] and labels int64 [rows], tensors in the host's memory.
        files.read(rows) is one request, for one row or many; files.labels are in memory. The pictures stand for more
        than a memory holds: each step reads its own, and none is kept for another.
    loading(cores, gpu): keyword arguments for the DataLoader. gpu.device.type is "cpu" where there is no GPU; on the
        simulated one "meta": ask for != "cpu", never for == "cuda".
    send(batches, gpu): yields each batch with its tensors on gpu.device; batches are lists of tensors. It takes at most two
        batches more than it has yielded.

    Returns script.replace(...). The training stays the same. Budget, a point each: read_s, stall_s, copied_bytes, syncs.
    """
    ### BEGIN SOLUTION

    def fetch(files, rows):
        return torch.from_numpy(files.read(rows)), torch.from_numpy(files.labels[rows])

    def loading(cores, gpu):
        pinned = gpu.device.type != "cpu"
        return {"num_workers": max(1, cores // 2), "prefetch_factor": 2, "pin_memory": pinned}

    def send(batches, gpu):
        for batch in batches:
            yield [tensor.to(gpu.device, non_blocking=True) for tensor in batch]

    return script.replace(fetch=fetch, loading=loading, send=send)
    ### END SOLUTION


# %% test="repair_data" points=1
from helpers.lessons.capstone.exercises import check_repair_data, run

check_repair_data("read_s", run(), run(side=24, batch=8, steps=6))

# %% hidden="repair_data" points=1
### BEGIN HIDDEN TESTS
from helpers.lessons.capstone.exercises import check_repair_data, run

check_repair_data("stall_s", run(seed=3, steps=13), run(batch=20, files=150))
### END HIDDEN TESTS

# %% hidden="repair_data" points=1
### BEGIN HIDDEN TESTS
from helpers.lessons.capstone.exercises import check_repair_data, run

check_repair_data("copied_bytes", run(seed=3, steps=13), run(batch=20, files=150))
### END HIDDEN TESTS

# %% hidden="repair_data" points=1
### BEGIN HIDDEN TESTS
from helpers.lessons.capstone.exercises import check_repair_data, run

check_repair_data("syncs", run(seed=3, steps=13), run(batch=20, files=150))
### END HIDDEN TESTS

# %% experiment
experiments.tried(script, "data", repair_data)

# %% [markdown]
# **Exercise 17.2 — the model** (★★★, 14 min)
#
# Repair `normalise`, `augment`, `attention`, `activation`, `places`, `split_heads`, `through`, `cost` and `forward`: those of them that
# need it. Graded counters: `launches_but_casts`, `saved_bytes`, `busy_s`, `compilations`. Begin with
# `capstone.where(script, "busy_s")`, in a cell of its own.
#
# - `launches_but_casts` leaves out *casts*: they put a tensor into another dtype, or into the layout that a convolution wants. Mixed
#   precision adds some, and still makes the step shorter. In 16 bits attention is another kernel, of another layout: a `contiguous`
#   beside it may then copy, and that counts.
# - `saved_bytes`, kept for backward, add up over a step, its parts and the validation. What a checkpoint computes again is not counted
#   there, but in `busy_s`. The budgets need no checkpoint.
# - `compilations` are counted in a small run on the CPU, and change no simulated time. `capstone.where(script, "compilations")` says
#   which function is compiled, and why again.
#
# <details><summary>Hint 1</summary>For each function that stands high in the tables: which single operator of PyTorch computes this? Is
# there a copy where a view would do? Does anything run twice?</details>
# <details><summary>Hint 2</summary>How many TFLOP/s does the table of <code>"busy_s"</code> show for the large products? In 16 bits
# an H100 reaches many times as many as in 32 (lesson 10); products as small as these stay far below that, and convolutions compute in TF32
# without being asked. And what does a compiled function depend on besides its tensors' shapes: the values in them, Python's
# numbers?</details>
# <details><summary>The idea</summary>Go down the lines of each counter with the four questions of section 3. An example: a GELU written
# out launches several kernels, and saves tensors in between. <code>F.gelu(x, approximate="tanh")</code> launches one, and saves
# <code>x</code>. Look for the same in copies, in what runs twice, in the bits of a number, and in the compiled function.</details>


# %% exercise="repair_model"
def repair_model(script: Script) -> Script:
    """The script with other functions for some of the model's parts; train.py says what each takes and returns.

    normalise(pictures), augment(pictures, mirrored), attention(q, k, v), activation(x), places(maps),
    split_heads(qkv, heads), through(block, x), cost(logits, labels), forward(model, numbers, labels).

    Returns script.replace(...). The training stays the same, and the form of GELU. torch.autocast(numbers.device.type,
    dtype=torch.bfloat16) is allowed: where losses are compared it is off, but for one run, which allows for what bfloat16
    rounds. Budget, a point each: launches_but_casts, saved_bytes, busy_s (time of the kernels), compilations.
    """
    ### BEGIN SOLUTION

    def normalise(pictures):
        return pictures.float() / 127.5 - 1

    @torch.compile
    def augment(pictures, mirrored):
        numbers = pictures.float() / 127.5 - 1
        return torch.where(mirrored[:, None, None, None], numbers.flip(-1), numbers)

    def attention(q, k, v):
        return F.scaled_dot_product_attention(q, k, v)

    def activation(x):
        return F.gelu(x, approximate="tanh")

    def places(maps):
        return maps.flatten(2).transpose(1, 2)

    def split_heads(qkv, heads):
        return [part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in qkv.chunk(3, dim=-1)]

    def through(block, x):
        return block(x)

    def cost(logits, labels):
        return F.cross_entropy(logits, labels)

    def forward(model, numbers, labels):
        with torch.autocast(numbers.device.type, dtype=torch.bfloat16):
            logits = model(numbers)
            return logits, F.cross_entropy(logits, labels)

    return script.replace(
        normalise=normalise,
        augment=augment,
        attention=attention,
        activation=activation,
        places=places,
        split_heads=split_heads,
        through=through,
        cost=cost,
        forward=forward,
    )
    ### END SOLUTION


# %% test="repair_model" points=1
from helpers.lessons.capstone.exercises import check_repair_model, run

check_repair_model("launches_but_casts", run(), run(side=24, width=48, steps=5), run(autocast=True))

# %% hidden="repair_model" points=1
### BEGIN HIDDEN TESTS
from helpers.lessons.capstone.exercises import check_repair_model, run

check_repair_model("saved_bytes", run(seed=5, steps=12), run(heads=8, layers=3, batch=8, parts=1))
### END HIDDEN TESTS

# %% hidden="repair_model" points=1
### BEGIN HIDDEN TESTS
from helpers.lessons.capstone.exercises import check_repair_model, run

check_repair_model("busy_s", run(seed=5, steps=12), run(heads=8, layers=3, batch=8, parts=1))
### END HIDDEN TESTS

# %% hidden="repair_model" points=1
### BEGIN HIDDEN TESTS
from helpers.lessons.capstone.exercises import check_repair_model, run

check_repair_model("compilations", run(seed=5, steps=12), run(heads=8, layers=3, batch=8, parts=1))
### END HIDDEN TESTS

# %% experiment
experiments.tried(script, "model", repair_model)

# %% [markdown]
# **Exercise 17.3 — the step** (★★★, 14 min)
#
# Repair `pieces`, `accumulate`, `share`, `clip`, `make_optimizer` and `average`: those of them that need it. Graded counters:
# `launches_but_casts`, `syncs`, `collectives`, `peak_bytes`. Begin with `capstone.where(script, "syncs")`.
#
# <details><summary>Hint 1</summary>How often does each loop run in a step: once, once a part, once a weight?</details>
# <details><summary>Hint 2</summary>The <code>torch._foreach_</code> functions of lesson 06 take a list of tensors in one call. A collective
# has a price of its own, whatever it sends: <code>torch.cat</code> puts all gradients into one flat tensor, <code>split</code>,
# <code>view_as</code> and <code>torch._foreach_copy_</code> bring them back. And how many parts of the batch have their activations in memory at once?</details>
# <details><summary>The idea</summary>Look at each loop over weights or parts: which one call takes all of them, and who waits? An example:
# lengths that Python reads one by one make the CPU wait for each. <code>nn.utils.clip_grad_norm_</code> returns the length of all
# together as a tensor, and nobody waits. For the memory, ask when a part's graph is gone.</details>


# %% exercise="repair_step"
def repair_step(script: Script) -> Script:
    """The script with other functions for some of the step's parts; train.py says what each takes and returns.

    pieces(batch, parts), accumulate(model, batch, parts), share(model), clip(model, most=1.0), make_optimizer(model),
    average(averaged, model, decay=0.9). Where torch.distributed is initialised, gradients become the
    mean of all ranks'.

    Returns script.replace(...). The training stays the same. Budget, a point each: launches_but_casts, syncs,
    collectives, peak_bytes.
    """
    ### BEGIN SOLUTION
    import torch.distributed as dist

    def pieces(batch, parts):
        yield from zip(*(tensor.chunk(parts) for tensor in batch), strict=True)

    def accumulate(model, batch, parts):
        kept, losses = [], []
        for pictures, labels, mirrored in pieces(batch, parts):
            logits, loss = forward(model, augment(pictures, mirrored), labels)
            (loss / parts).backward()
            kept.append(logits.detach())
            losses.append(loss.detach())
        share(model)
        return torch.cat(kept), torch.stack(losses).mean()

    def share(model):
        if dist.is_initialized():
            grads = [p.grad for p in model.parameters() if p.grad is not None]
            flat = torch.cat([grad.flatten() for grad in grads]) / dist.get_world_size()
            dist.all_reduce(flat)
            parts = flat.split([grad.numel() for grad in grads])
            torch._foreach_copy_(grads, [part.view_as(g) for part, g in zip(parts, grads, strict=True)])

    def clip(model, most=1.0):
        return nn.utils.clip_grad_norm_(model.parameters(), most)

    def make_optimizer(model):
        return torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)

    @torch.no_grad()
    def average(averaged, model, decay=0.9):
        torch._foreach_lerp_(list(averaged.parameters()), list(model.parameters()), 1 - decay)

    return script.replace(
        pieces=pieces,
        accumulate=accumulate,
        share=share,
        clip=clip,
        make_optimizer=make_optimizer,
        average=average,
    )
    ### END SOLUTION


# %% test="repair_step" points=1
from helpers.lessons.capstone.exercises import check_repair_step, run

check_repair_step("launches_but_casts", run(), run(batch=8, parts=4, steps=6))

# %% hidden="repair_step" points=1
### BEGIN HIDDEN TESTS
from helpers.lessons.capstone.exercises import check_repair_step, run

check_repair_step("syncs", run(seed=7, steps=13), run(batch=15, parts=3), run(parts=1, layers=1))
### END HIDDEN TESTS

# %% hidden="repair_step" points=1
### BEGIN HIDDEN TESTS
from helpers.lessons.capstone.exercises import check_repair_step, run

check_repair_step("collectives", run(seed=7, steps=13), run(batch=15, parts=3), run(parts=1, layers=1))
### END HIDDEN TESTS

# %% hidden="repair_step" points=1
### BEGIN HIDDEN TESTS
from helpers.lessons.capstone.exercises import check_repair_step, run

check_repair_step("peak_bytes", run(seed=7, steps=13), run(batch=15, parts=3), run(parts=1, layers=1))
### END HIDDEN TESTS

# %% experiment
experiments.tried(script, "step", repair_step)

# %% [markdown]
# ## 5 · Your ladder
#
# A *ladder* shows repairs one on the other: each row has one function more.

# %% experiment
experiments.your_ladder(script, repair_data, repair_model, repair_step)

# %% [markdown]
# The data come first, then the functions by what they cost at first (`forward` where `Block.forward` is). The last row has those that
# change neither time nor memory by 2 %. Does a function buy nothing, though it took long? It may only have waited, and now another line
# waits. A repair of memory may even make the step a little longer. **What a repair buys depends on the script at that moment**, in every
# "this made it twice as fast" that you read. `lesson.report()` puts this ladder on a page.
#
# The method ends as it began: measure again, this time the whole. Does it still learn the same? And what is left?

# %% experiment
experiments.tried(script, "all", repair_data, repair_model, repair_step)

# %% experiment
experiments.left(script, repair_data, repair_model, repair_step)

# %% [markdown]
# In this lesson's usual script, the area *run* still takes half of the step: compare its sum, below the table, with the time above. So
# exercise 17.4, in *Further*, comes next. Where nothing is over its budget, you can stop: that is a decision too.
#
# ## Your own script
#
# `own_script.where(step, "syncs")` shows the lines of any function, as `capstone.where` does. One command, in the course's folder, ranks
# the lines of any script as it stands: where it says `"cuda"`, it gets the simulated card. (For packages of your own see
# `docs/any-script.md`.)
#
# ```bash
# python -m helpers run path/to/yours.py --card H100
# ```
#
# This block does the same for a part of a script, here a toy:

# %% experiment tags=["nbval-ignore-output"]
from helpers import own_script
from helpers.own_script import toy

with own_script.on("H100") as ran:
    model, optimizer, loss_fn, loader, device, step = toy("cuda", width=1024, batch=512)
    for x, y in loader:
        loss = loss_fn(model(x.to(device)), y.to(device))
        loss.backward()
        norms = [p.grad.norm().item() for p in model.parameters()]
        optimizer.step()
        optimizer.zero_grad()
own_script.findings(ran)

# %% [markdown]
# Read it from the top. *Host* and *device* say what either side did in a step: here the host is busy, and the device mostly idle. **MFU**
# (lesson 03) is a share of the card's peak in one precision: compare it only at the same one, and aim at the time. Then come the lines, the
# one whose repair could buy most first. *could buy* is a bound; *behind those above* is what is left of it once the rows above are
# repaired. First is the loader: it works in this process, and the advice is workers. Second is the optimizer, the advice
# `fused=True`. The waits for `norms` come far below: on an idle GPU they take next to nothing. Python and the loader are measured on
# your machine; the rest is simulated.
#
# On a real GPU,
# [`torch.cuda.set_sync_debug_mode("warn")`](https://docs.pytorch.org/docs/stable/generated/torch.cuda.set_sync_debug_mode.html) names
# most lines that wait (lesson 03).
#
# And is it the loader? Run the loop once on one kept batch. Each run stops after 400 steps or ten seconds:

# %% experiment
import itertools
import time


def seconds_a_step(batches, most_s=10.0):
    start, steps = time.perf_counter(), 0
    while steps < 400 and time.perf_counter() - start < most_s:
        step(next(batches))
        steps += 1
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return (time.perf_counter() - start) / steps


model, optimizer, loss_fn, loader, device, step = toy()
kept = itertools.repeat(next(iter(loader)))
seconds_a_step(kept, 1.0)  # the first steps are slow
batches = (batch for epoch in itertools.count() for batch in loader)
next(batches)  # where there are workers, it starts them
print(f"as it is: ≈ {1e3 * seconds_a_step(batches):.2f} ms a step")
print(f"on one batch: ≈ {1e3 * seconds_a_step(kept):.2f} ms a step")

# %% [markdown]
# Is it much faster on one batch? Then repair loading first. After each repair run twenty steps with fixed seeds, and compare
# the losses: `torch.testing.assert_close(after, before, rtol=1e-3, atol=0)`. Mixed precision rounds more: there look at the validation
# too. Before the first repair look for switches that somebody left on: anomaly detection, a profiler, `CUDA_LAUNCH_BLOCKING=1`.
#
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | Measure, rank, repair one, measure again. | A mistake in the script that makes its losses wrong comes first. |
# | A repair buys at most what its place costs now, and what it makes cheaper elsewhere. | Behind another limit it buys nothing yet. |
# | First the data, then the largest row. | A run that does not fit begins with memory. |
# | After every repair compare all that the run writes down, on more than one shape. | bfloat16 rounds more, so losses move a little: say by how much. |
#
# **Read on**: PyTorch's [performance tuning guide](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html); H. He,
# [*Making deep learning go brrrr from first principles*](https://horace.io/brrr_intro.html) (2022).

# %% experiment
lesson.progress()

# %% [markdown]
# ## Further
#
# | section | minutes |
# |---|---|
# | Which part of the machine | 2 |
# | The run around the step, with exercise 17.4 | 14 |
# | All of it, with exercise 17.5 | 4 |
# | Two models of a known size, and the sources on trial | 12 |
#
# ### Which part of the machine
#
# **Which part of the machine, made twice as fast, would help most?** (*Copies* are those between the host and the GPU.
# *Loading* means reading pictures, and making batches of them.) The next cell but one runs the script on four other machines.
# It takes half a minute.

# %% experiment
you = lesson.predict({"twice as fast helps most": ...}, choices=["CPU", "GPU", "copies", "loading"])

# %% experiment
gains = experiments.gains(script)
helps_most = max(gains, key=gains.get)
you.against(
    {"twice as fast helps most": helps_most}, experiments.of_the_machine(gains), evidence="simulated (H100)"
)

# %% [markdown]
# A number near 2 means that this part alone holds the step up. Where all are far from 2, the parts share the blame. Loading can gain more
# than its number says: workers that read beside the step take nearly all of its time away.
#
# ### The run around the step
#
# Logging, validation and checkpoints are not the training. They should cost next to nothing, and say what they said before.
#
# Somebody finds that `average` costs launches, and leaves its work out. **Does the loss of a training step change? Does the board accept
# the repair?**

# %% experiment
you = lesson.predict({"the loss of a step changes": ..., "the board accepts it": ...}, choices=["yes", "no"])


# %% experiment
def no_average(averaged, model, decay=0.9):
    pass


board = capstone.compare(script, script.replace(average=no_average))
you.against(experiments.left_out(board), board, evidence="simulated (H100)")

# %% [markdown]
# No gradient depends on `average`, so the losses of the training are the same. But the averaged weights are what this script validates,
# and they no longer move.
#
# **Exercise 17.4 — the run** (★★, 10 min)
#
# Repair `count_right`, `log`, `remember`, `held_out`, `validate`, `to_host` and `save`: those of them that need it. Graded counters:
# `syncs`, `growth_bytes` (what a step leaves behind), `copied_bytes`, `saved_bytes`.
#
# <details><summary>Hint 1</summary>Who needs these numbers, and when? A number that nobody reads before the fourth step may stay on the GPU until
# then.</details>
# <details><summary>Hint 2</summary>What does the record hold on to: a number, a tensor, a tensor with its graph? What in the validation needs
# gradients? And what does not change from one validation to the next?</details>
# <details><summary>The idea</summary><code>log</code> stacks three tensors, and reads those of <code>LOG_EVERY</code> steps at once;
# <code>remember</code> keeps classes as uint8; pictures that are held out go to the GPU once; <code>torch.no_grad</code>; all weights flat, in
# one copy to pinned memory, every <code>SAVE_EVERY</code> steps.</details>


# %% exercise="repair_run"
def repair_run(script: Script) -> Script:
    """The script with other functions for some of the run's parts; train.py says what each takes and returns.

    count_right(logits, labels), log(record, loss, right, length), remember(record, logits), held_out(files, size, gpu),
    validate(model, batches, gpu), to_host(module), save(record, step, model, averaged).

    What a run writes down stays the same: see Record in train.py. record.guesses may hold classes or logits, in any
    dtype, an entry a step; record.held_out numbers, or tensors of one number. Rows may wait in record.waiting until
    LOG_EVERY of them are there.

    Returns script.replace(...). Budget, a point each: syncs, growth_bytes, copied_bytes, saved_bytes.
    """
    ### BEGIN SOLUTION

    def count_right(logits, labels):
        return (logits.argmax(-1) == labels).sum()

    def log(record, loss, right, length):
        record.waiting.append(torch.stack([loss, right, length]))
        if len(record.waiting) == LOG_EVERY:
            record.rows += torch.stack(record.waiting).tolist()
            record.waiting.clear()

    def remember(record, logits):
        record.guesses.append(logits.argmax(-1).to(torch.uint8))

    def held_out(files, size, gpu):
        rows = range(len(files) - len(files) // 4, len(files))
        batches = [list(rows[i : i + size.batch]) for i in range(0, len(rows), size.batch)]
        return [[tensor.to(gpu.device) for tensor in fetch(files, batch)] for batch in batches]

    @torch.no_grad()
    def validate(model, batches, gpu):
        losses = [forward(model, normalise(pictures), labels)[1] for pictures, labels in batches]
        return torch.stack(losses).mean()

    def to_host(module):
        flat = torch.cat([p.detach().flatten() for p in module.parameters()])
        host = torch.empty(flat.shape, dtype=flat.dtype, pin_memory=flat.device.type != "cpu")
        return host.copy_(flat, non_blocking=True)

    def save(record, step, model, averaged):
        if step % SAVE_EVERY == 0:
            record.saved = {"step": step, "model": to_host(model), "averaged": to_host(averaged)}

    return script.replace(
        count_right=count_right,
        log=log,
        remember=remember,
        held_out=held_out,
        validate=validate,
        to_host=to_host,
        save=save,
    )
    ### END SOLUTION


# %% test="repair_run" points=1
from helpers.lessons.capstone.exercises import check_repair_run, run

check_repair_run("syncs", run(), run(steps=6, files=120))

# %% hidden="repair_run" points=1
### BEGIN HIDDEN TESTS
from helpers.lessons.capstone.exercises import check_repair_run, run

check_repair_run("growth_bytes", run(seed=9, steps=13), run(batch=20, files=150, parts=4))
### END HIDDEN TESTS

# %% hidden="repair_run" points=1
### BEGIN HIDDEN TESTS
from helpers.lessons.capstone.exercises import check_repair_run, run

check_repair_run("copied_bytes", run(seed=9, steps=13), run(batch=20, files=150, parts=4))
### END HIDDEN TESTS

# %% hidden="repair_run" points=1
### BEGIN HIDDEN TESTS
from helpers.lessons.capstone.exercises import check_repair_run, run

check_repair_run("saved_bytes", run(seed=9, steps=13), run(batch=20, files=150, parts=4))
### END HIDDEN TESTS

# %% experiment
experiments.tried(script, "run", repair_run)

# %% [markdown]
# ### All of it
#
# **Exercise 17.5 — the whole** (★, 2 min)
#
# Put your repairs together. The budget is now that of the whole script. Graded counters: `step_s`, `peak_bytes`,
# `growth_bytes`.
#
# <details><summary>Hint 1</summary>Each of your functions takes a script and returns one.</details>
# <details><summary>Hint 2</summary>If one of them is not written yet, leave it out: each counter is graded by itself.</details>
# <details><summary>The idea</summary><code>repair_run(repair_step(repair_model(repair_data(script))))</code></details>


# %% exercise="repair"
def repair(script: Script) -> Script:
    """The script with all your repairs. The training stays the same.

    Budget, a point each: step_s on the simulated H100, peak_bytes, growth_bytes.
    """
    ### BEGIN SOLUTION
    return repair_run(repair_step(repair_model(repair_data(script))))
    ### END SOLUTION


# %% test="repair" points=1
from helpers.lessons.capstone.exercises import check_repair, run

check_repair("step_s", run(), run(autocast=True))

# %% hidden="repair" points=1
### BEGIN HIDDEN TESTS
from helpers.lessons.capstone.exercises import check_repair, run

check_repair("peak_bytes", run(seed=11, side=24, width=48, batch=16, parts=4, steps=13))
### END HIDDEN TESTS

# %% hidden="repair" points=1
### BEGIN HIDDEN TESTS
from helpers.lessons.capstone.exercises import check_repair, run

check_repair("growth_bytes", run(seed=11, side=24, width=48, batch=16, parts=4, steps=13))
### END HIDDEN TESTS

# %% experiment
experiments.tried(script, "all", repair_data, repair_model, repair_step, repair_run)

# %% [markdown]
# ### Two models of a known size
#
# The capstone's script is small, and its faults were planted. What do the same repairs give on models that people train? Here are
# [BERT-base](https://arxiv.org/abs/1810.04805) and
# [GPT-2](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf) with 124 million weights. The first
# rung is a plain step: float32, eager, attention by hand, AdamW in a loop. Both ladders were recorded on a real H100. The last two
# columns of a table are simulated. **How many times as fast is BERT with all rungs together, and which rung buys most?**

# %% experiment
steps = [
    "fused operators",
    "no needless wait",
    "bf16",
    "fused AdamW",
    "last layer: what is read",
    "compiled",
    "CUDA graph",
]
you = lesson.predict(
    {"all rungs together": ..., "the rung that buys most": ...},
    choices={
        "all rungs together": ["under 4 times", "4 to 8 times", "over 8 times"],
        "the rung that buys most": steps,
    },
)

# %% experiment
bert = {rung.name: 1e3 * rung.seconds for rung in reference_repair.scored("bert")}
beside = {rung.name: 1e3 * rung.seconds for rung in reference_repair.simulated("bert")}
lesson.keep(
    bert_times=bert["plain fp32, eager"] / bert["CUDA graph"], bf16_off=beside["bf16"] / bert["bf16"] - 1
)
lesson.keep(loop_launches=experiments.launches_of_adamw_in_a_loop("bert"))
lesson.keep(simulated_times=beside["plain fp32, eager"] / beside["CUDA graph"])
lesson.keep(loop_ms=bert["bf16"] - bert["fused AdamW"], loop_simulated=beside["bf16"] - beside["fused AdamW"])
lesson.keep(
    eager_ms=bert["last layer: what is read"], compiled_ms=bert["compiled"], graph_ms=bert["CUDA graph"]
)
lesson.keep(idle_ms=bert["compiled"] - bert["CUDA graph"])
shown = reference_repair.table("bert")
you.against(experiments.climbed("bert"), shown, evidence=reference_repair.evidence("bert"))

# %% [markdown]
# BERT's ladder was recorded, and its last two columns show the same rungs simulated. Whole ladders are near to each other:
# {{bert_times:.1f}} times as fast recorded, {{simulated_times:.1f}} simulated, with the same rung first. The single rungs teach more:
#
# - **bf16** is simulated {{bf16_off:+.0%}} off. **Fused AdamW** then saves {{loop_ms:.0f}} ms, and simulated only {{loop_simulated:.0f}}. Most of both has one
#   cause, as far as we can tell: AdamW in a loop is {{loop_launches:,}} launches. In fp32 the GPU has so much to do that they hide behind it. In
#   16 bits they do not, and a real host launches more slowly than the simulated one (lesson 06 shows that loop recorded).
# - **Compiled** is *slower* than the rung before: {{compiled_ms:.1f}} ms after {{eager_ms:.1f}}. Its kernels are not to blame. The CUDA graph
#   launches nearly the same kernels all at once, and takes {{graph_ms:.1f}} ms: about {{idle_ms:.0f}} less. For most of these the GPU had waited
#   for the host, as far as we can tell. What the host did is not in this recording. Each block is compiled by itself. We suppose: at each
#   forward its guards are checked (lesson 11), and forward and backward launch their kernels one by one from Python. The simulator counts
#   a launch, and no guard: so it sees nothing for a graph to gain. **A compiled step may wait for its host. Look at the trace, and try a
#   graph (lesson 07).**

# %% experiment
gpt2 = {rung.name: 1e3 * rung.seconds for rung in reference_repair.scored("gpt2")}
gpt2_beside = {rung.name: 1e3 * rung.seconds for rung in reference_repair.simulated("gpt2")}
lesson.keep(gpt2_off=gpt2_beside["fused AdamW"] / gpt2["fused AdamW"] - 1)
head = experiments.product_with_the_vocabulary()
lesson.keep(gpt2_compiled=gpt2["compiled"], gpt2_fused=gpt2["fused AdamW"])
lesson.keep(head_ms=head.odd_ms, head_tf32=head.odd_tf32_ms, head_padded=head.padded_ms)
lesson.keep(head_more=2 * 3 * (head.odd_ms - head.padded_ms))
reference_repair.table("gpt2")

# %% [markdown]
# GPT-2's ladder holds a riddle: compiled, the step takes {{gpt2_compiled:.0f}} ms and not {{gpt2_fused:.0f}}, and fewer launches alone do not explain
# that. The largest product of this model has a side of 50,257, its vocabulary. That number is odd, and in 16 bits Tensor Cores want sides that are
# multiples of 8. The product alone was recorded too, with 8,192 tokens. It takes {{head_ms:.1f}} ms in bf16, nearly as long as in TF32
# ({{head_tf32:.1f}} ms). With a vocabulary of 50,304, a multiple of 128, it takes {{head_padded:.1f}} ms (simulated). A step has twice as many tokens,
# and three such products. If all are as slow, they cost {{head_more:.0f}} ms more than padded ones. A compiled step need not pay that: Inductor can lay the rows of a
# buffer of its own out in whole 128 bytes (its option `padding_alignment_bytes`), and can pad a product's sides to whole 16 bytes (its pass `pad_mm`). Which of
# the two it did here, we have not looked. The rest may be passes over the logits, which it can fuse. In eager mode the padding is one line:
# **a vocabulary of 50,304**, whose last entries are never a target.

# %% experiment
reference_repair.ladders()

# %% [markdown]
# The last two are this lesson's usual script, as it was and with all repairs, simulated: at the size that you know, then with larger
# pictures, a wider model and half the batch. There the products are larger, so 16 bits buy more. All four go past the two headlines, and end under
# half of the memory. Three things have to be said with it:
#
# - **The size was chosen.** The last two show how much that decides.
# - **The simulator is off.** The last columns of the tables say by how much. On eager steps in 16 bits it is too fast, in part because its
#   host is. But GPT-2's step with fused AdamW has few launches, and is {{gpt2_off:+.0%}} off. So the last two ladders may end lower on a real H100.
# - **A compiled rung is simulated from Inductor's own plan**, that for a CPU: on a GPU it may split reductions, and choose other products.
#   Its times and its memory are simulated.
#
# In both models one repair buys most: 16 bits. It moves the products to the Tensor Cores. That is why a headline means little without
# the precision of the plain step.
#
# And on a CPU? The next two tables were recorded on two cores, with smaller models, each rung in pairs with the plain step (lesson 00).
# The interval stands behind each number.

# %% experiment
reference_repair.measured_once("gpt2")

# %% experiment
reference_repair.measured_once("bert")

# %% [markdown]
# And the capstone's script, area by area, on the same two cores?

# %% experiment
reference_repair.measured_once("capstone")

# %% [markdown]
# Most of the script's faults are a GPU's faults. A CPU computes each operator before the next one begins: nothing waits for a queue, and
# there is nothing to pin memory for. Only the repairs of the model gain much here.
# **A repair is for a machine: measure on yours.** `capstone.live(script, repair(script))` tries your repair on your CPU, in a minute.

# %% [markdown]
# ### Sources on trial
#
# Two of the sources that this course tries end with a headline, and neither gives the script that it began with. So the headlines
# are tried on models of a known size. One source names its card, a V100. That card has no bf16, so there the step is cast to fp16, with a
# scaler. The simulated V100 was held against published steps in fp32 only. How fast its products in fp16 are is taken from other
# cards, and no V100 has checked it.

# %% experiment
from helpers.lessons.capstone import claims

headlines = claims.on_trial(reference_repair.scored("bert"), reference_repair.scored("gpt2"))
lesson.verdicts(headlines, evidence="recorded · simulated (V100) · simulated (H100) · arithmetic")

# %% [markdown]
# "Times as fast" says as much about the script before as about the repairs.
