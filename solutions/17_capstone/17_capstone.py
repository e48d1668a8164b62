# %% [markdown]
# # 17 · The capstone
#
# ## How do I make a training script fast that I have never seen?
#
# Here is a training script of somebody else. It is correct, it is clean to read, and it is slow in many ways. Nobody has marked
# the slow places. You have the tools of sixteen lessons. In this lesson you need a *method*: measure, rank, repair one thing,
# measure again. Your class may have another script than other classes, so there is no list of answers to look up.
#
# **Time** 60 min, with three exercises; *Further*: 50 min, with two more and with the same training on several GPUs.
# **Before this** the lessons of Parts I to V; for the gradients that ranks share, lesson 14.
#
# **Afterwards you can**
# - find out in five minutes what limits an unknown training run;
# - order repairs by what each can buy, before you write one;
# - repair a script step by step and prove at each step that it still learns the same.

# %% setup
import torch
from torch import nn
from torch.nn import functional as F

from helpers import capstone, lesson, plots, trace
from helpers.capstone import given
from helpers.capstone.parts import Script
from helpers.experiments import capstone as show

torch.set_num_threads(1)
script = given.script()
lesson.start("17_capstone", evidence=["simulated (H100)", "live (CPU)", "arithmetic"])

# %% [markdown]
# ## 1 · Meet the script
#
# The script trains a small vision transformer to tell drawn shapes apart. A step adds up the gradients of a few *parts* of the
# batch, shares them with the other ranks, clips them, and updates the weights. Beside the model it moves an average of the
# weights. Now and then it logs, validates and keeps a checkpoint.
#
# The next cell writes the script to `train.py`, beside this notebook. **Open the file and read it once, from the end to the
# beginning**: `train` first, then the functions that it calls. Do not repair anything yet. Five minutes are enough.

# %% experiment
print(script.write("train.py").name, "is written;", len(script.source.splitlines()), "lines")
show.parts(script)

# %% [markdown]
# The table lists the functions that you may replace, in four areas. The other functions and the classes stay as they are. A new function goes in
# with `script.replace(name=function)`. It takes the arguments of the old one, and it may use every name of the script.
#
# A step of the script runs on a simulated H100, as one of two ranks. Before you measure it: **how much of the time will the GPU
# compute? And which part of the machine, made twice as fast, would help most?** (*Loading* means reading pictures and making
# batches of them.)

# %% experiment
you = lesson.predict(
    {"the GPU computes": ..., "twice as fast helps most": ...},
    choices={
        "the GPU computes": ["under 50 %", "50 to 90 %", "over 90 %"],
        "twice as fast helps most": ["CPU", "GPU", "copies", "loading"],
    },
)

# %% experiment
recorded = show.traced(script)
gains = show.gains(script)
measured = {
    "the GPU computes": show.computes(recorded),
    "twice as fast helps most": max(gains, key=gains.get),
}
you.against(measured, show.of_the_machine(gains), evidence="simulated (H100)")

# %% [markdown]
# This is the first cut: it names the part of the machine where the time goes. Two of the numbers may be close. Then no single part is the
# limit, and several parts of the machine have to be relieved, one after the other.
#
# The trace says more. Read it as in lesson 03: the first line, the reasons, the last line; then look at the gaps.

# %% experiment
print(trace.classify(recorded))
plots.queue(recorded, title="Four steps of the script, as it is")

# %% [markdown]
# ## 2 · The scoreboard
#
# One number is not enough. The time of a step hides a sync as long as something else is slower. So the scoreboard counts what
# you can change: launches, syncs, bytes. The column *budget* says what each counter may be when all is repaired: what the
# best version needs, and a fifth of what the repairs save on top (a tenth for syncs, collectives and compilations).

# %% experiment
show.scoreboard(script)

# %% [markdown]
# Read the last column from the top. It is a map of the work: a counter that is far over its budget has a cause somewhere. A counter
# within its budget needs nothing. Two counters need a word. *Waits for data* is the part of loading that the
# step waits for; *reading* is all of it, whoever does it. *Memory that it leaves behind* grows with every step, until the card is full.
#
# ## 3 · Which part of the script?
#
# The counters say *what*. Now find out *where*. In the table each function of the script is charged with what happens while it runs,
# without the functions that it calls. **Which area has the part with the most launches, which the part with the most syncs?**

# %% experiment
areas = ["data", "model", "step", "run", "none of them"]
you = lesson.predict({"most launches": ..., "most syncs": ...}, choices=areas)

# %% experiment
spent = show.spent(script)
you.against(show.worst(spent), show.by_part(spent), evidence="simulated (H100)", what="area")

# %% [markdown]
# *Backward* stands for itself: each of its kernels belongs to an operator of forward. A part that is long on the CPU and launches
# little either computes on the host or waits.
#
# Two more tables go down to the line. The first names the lines that make the CPU wait (lesson 03). The second names
# the lines whose tensors fill the memory at the peak (lesson 08).

# %% experiment
show.waits(script).show()
show.held(show.snapshot(script))

# %% [markdown]
# ## 4 · Rank, then repair one
#
# You have seen enough to make a list. Write it down, on paper: place, counter, what it can buy at most. **What a repair can buy is what
# the place costs now**, and you have measured that. Order the list by it. Where two are close, take this order:
#
# 1. **Waits for data.** A step that waits for data hides every other repair. (Lessons 04 and 05.)
# 2. **Syncs.** After a sync the GPU is empty. Everything that the CPU does then costs time. (Lesson 03.)
# 3. **Launches**, if kernels are short: fewer and larger ones. (Lessons 02, 06, 11.)
# 4. **The kernels themselves**, if the GPU is the limit: fewer bits, better operators, no work done twice. (Lessons 09 to 12.)
# 5. **Memory**, if it limits the batch: what is saved for backward, what is kept after the step. (Lessons 08 and 09.)
#
# Then repair **one** place, and look at the board. Three things can happen. The counter falls and the step gets faster: go on. The counter
# falls and the step stays as long: keep the repair, for another limit hides it. The losses change: take the repair back.
#
# A faster script that learns something else is not faster. The board compares the losses of a short run, and the tests compare
# more: weights, averaged weights, checkpoints, validation, in runs of other sizes, other data, and more steps than you tried. So a function
# that is right for one shape, remembers the last batch, or leaves work out earns nothing.
#
# The exercises follow the areas, and each is graded by four counters, a point each. One counter repaired earns its point, also if the
# others are not. Do them in the order of *your* list. They do not depend on each other.

# %% [markdown]
# **Exercise 17.1 — the data** (★★, 6 min)
#
# Repair `fetch`, `loading` and `send`. Graded counters: reading, waits for data, bytes copied, syncs.
#
# <details><summary>Hint 1</summary>How many requests does a batch take, and how many could it take? How many bytes does a pixel need
# until it is on the GPU? Who reads, while the GPU computes?</details>
# <details><summary>Hint 2</summary>A copy to the GPU makes the CPU wait unless the memory is pinned <i>and</i> the copy does not block.
# <code>loading</code> returns the arguments of a <code>DataLoader</code>: its documentation lists all of them.</details>
# <details><summary>The idea</summary>One request for all rows of a batch, uint8 until <code>normalise</code>; workers that read ahead into
# pinned memory, as many as the cores can feed; <code>non_blocking=True</code> for every tensor.</details>


# %% exercise="repair_data"
def repair_data(script: Script) -> Script:
    """The script with other functions for some of: fetch, loading, send.

    fetch(files, rows): pictures uint8 [rows, 3, side, side] and labels int64 [rows], a batch of the host's memory.
        files.read(rows) is one request, for one row or many; files.labels are in memory.
    loading(cores, gpu): keyword arguments for the DataLoader. gpu.device.type is "cpu" where there is no GPU.
    send(batches, gpu): yields each batch with its tensors on gpu.device; batches are lists of tensors.

    Returns script.replace(...). The training stays the same. Budget, a point each: reading, waits for data, bytes
    copied, syncs.
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
from helpers.exercises.capstone import check_repair_data, run

check_repair_data("read_s", run(), run(side=24, batch=8, steps=6))

# %% hidden="repair_data" points=1
### BEGIN HIDDEN TESTS
from helpers.exercises.capstone import check_repair_data, run

check_repair_data("stall_s", run(seed=3, steps=13), run(batch=20, files=150))
### END HIDDEN TESTS

# %% hidden="repair_data" points=1
### BEGIN HIDDEN TESTS
from helpers.exercises.capstone import check_repair_data, run

check_repair_data("copied_bytes", run(seed=3, steps=13), run(batch=20, files=150))
### END HIDDEN TESTS

# %% hidden="repair_data" points=1
### BEGIN HIDDEN TESTS
from helpers.exercises.capstone import check_repair_data, run

check_repair_data("syncs", run(seed=3, steps=13), run(batch=20, files=150))
### END HIDDEN TESTS

# %% experiment
show.tried(script, repair_data)

# %% [markdown]
# **Exercise 17.2 — the model** (★★★, 10 min)
#
# Repair `normalise`, `augment`, `attention`, `activation`, `places`, `split_heads`, `through`, `cost` and `forward`: those of them that need it.
# Graded counters: launches, bytes saved, time of the kernels, compilations.
#
# <details><summary>Hint 1</summary>Go through the parts in the order of the table. For each: which single operator of PyTorch computes this? Is there
# a copy that a view would spare? Does anything run once more than it has to?</details>
# <details><summary>Hint 2</summary>What does a compiled function compile again for: a number that changes, a shape that changes? And in which format are
# the large products computed?</details>
# <details><summary>The idea</summary><code>F.scaled_dot_product_attention</code>, <code>F.gelu</code>, <code>F.cross_entropy</code>; views from
# <code>chunk</code>, <code>unflatten</code> and <code>transpose</code>; no checkpoint where memory is not short; one
# <code>torch.where</code> over the whole batch; <code>torch.autocast</code> in bfloat16 around model and loss; tensors as arguments of
# what is compiled.</details>


# %% exercise="repair_model"
def repair_model(script: Script) -> Script:
    """The script with other functions for some of the model's parts; train.py says what each takes and returns.

    normalise(pictures), augment(pictures, mirrored), attention(q, k, v), activation(x), places(maps),
    split_heads(qkv, heads), through(block, x), cost(logits, labels), forward(model, numbers, labels).

    Returns script.replace(...). The training stays the same, to the rounding of bfloat16 where the script computes in it.
    Budget, a point each: launches, bytes saved for backward, time of the kernels, compilations.
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
from helpers.exercises.capstone import check_repair_model, run

check_repair_model("launches", run(), run(side=24, width=48, steps=5), run(autocast=True))

# %% hidden="repair_model" points=1
### BEGIN HIDDEN TESTS
from helpers.exercises.capstone import check_repair_model, run

check_repair_model("saved_bytes", run(seed=5, steps=12), run(heads=8, layers=3, batch=8, parts=1))
### END HIDDEN TESTS

# %% hidden="repair_model" points=1
### BEGIN HIDDEN TESTS
from helpers.exercises.capstone import check_repair_model, run

check_repair_model("busy_s", run(seed=5, steps=12), run(heads=8, layers=3, batch=8, parts=1))
### END HIDDEN TESTS

# %% hidden="repair_model" points=1
### BEGIN HIDDEN TESTS
from helpers.exercises.capstone import check_repair_model, run

check_repair_model("compilations", run(seed=5, steps=12), run(heads=8, layers=3, batch=8, parts=1))
### END HIDDEN TESTS

# %% experiment
show.tried(script, repair_model)

# %% [markdown]
# **Exercise 17.3 — the step** (★★★, 8 min)
#
# Repair `pieces`, `accumulate`, `share`, `clip`, `make_optimizer` and `average`: those of them that need it. Graded counters: launches, syncs,
# collectives, peak memory.
#
# <details><summary>Hint 1</summary>How many times does each of these loops run in a step: once, once a part, once a weight? How often has it to?</details>
# <details><summary>Hint 2</summary>The <code>_foreach_</code> functions of lesson 06 take a list of tensors in one call. A collective has a price of its own,
# whatever it sends. And what keeps the graph of a part alive, when its backward is done?</details>
# <details><summary>The idea</summary><code>chunk</code>; <code>backward</code> part by part, and <code>detach</code> for all that is kept; the gradients flat in one
# tensor, one all-reduce after the last part; <code>clip_grad_norm_</code>; <code>fused=True</code>; <code>torch._foreach_lerp_</code>.</details>


# %% exercise="repair_step"
def repair_step(script: Script) -> Script:
    """The script with other functions for some of the step's parts; train.py says what each takes and returns.

    pieces(batch, parts), accumulate(model, batch, parts), share(model), clip(model, most=1.0), make_optimizer(model),
    average(averaged, model, decay=0.9). With torch.distributed begun, gradients become the mean of all ranks'.

    Returns script.replace(...). The training stays the same. Budget, a point each: launches, syncs, collectives, peak
    memory.
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
from helpers.exercises.capstone import check_repair_step, run

check_repair_step("launches", run(), run(batch=8, parts=4, steps=6))

# %% hidden="repair_step" points=1
### BEGIN HIDDEN TESTS
from helpers.exercises.capstone import check_repair_step, run

check_repair_step("syncs", run(seed=7, steps=13), run(batch=15, parts=3), run(parts=1, layers=1))
### END HIDDEN TESTS

# %% hidden="repair_step" points=1
### BEGIN HIDDEN TESTS
from helpers.exercises.capstone import check_repair_step, run

check_repair_step("collectives", run(seed=7, steps=13), run(batch=15, parts=3), run(parts=1, layers=1))
### END HIDDEN TESTS

# %% hidden="repair_step" points=1
### BEGIN HIDDEN TESTS
from helpers.exercises.capstone import check_repair_step, run

check_repair_step("peak_bytes", run(seed=7, steps=13), run(batch=15, parts=3), run(parts=1, layers=1))
### END HIDDEN TESTS

# %% experiment
show.tried(script, repair_step)

# %% [markdown]
# ## 5 · The ladder
#
# This is the ladder of *your* repairs, one on the other. Run the cell whenever you have repaired something. Before you look: **which of your three
# repairs shortens a step most?**

# %% experiment
you = lesson.predict({"shortens a step most": ...}, choices=["data", "model", "step"])

# %% experiment
repairs = {"data": repair_data, "model": repair_model, "step": repair_step}
picture = show.own_ladder(script, *repairs.values())
you.against({"shortens a step most": show.best(script, repairs)}, picture, evidence="simulated (H100)")

# %% [markdown]
# The rungs depend on their order: a repair that is hidden behind another limit seems to buy nothing until that limit is gone.
# What a repair bought is therefore a property of the script at that moment, and so is every "this made it twice as fast" that you read.

# %% [markdown]
# ## Your own script
#
# The same five minutes on a run of your own. The block records a trace and a memory snapshot in one go; where there is no GPU, the trace alone.
#
# ```python
# from torch.profiler import profile, schedule
#
# gpu = torch.cuda.is_available()
# if gpu:
#     torch.cuda.memory._record_memory_history(max_entries=100_000)
# plan = schedule(wait=1, warmup=1, active=3, repeat=1)
# with profile(schedule=plan, on_trace_ready=lambda p: p.export_chrome_trace("trace.json.gz")) as prof:
#     for _, batch in zip(range(5), loader):
#         step(batch)
#         prof.step()
# if gpu:
#     torch.cuda.memory._dump_snapshot("snapshot.pickle")
# ```
#
# ```bash
# python -m helpers trace.json.gz      # what limits the run
# python -m helpers snapshot.pickle    # which lines hold the memory
# ```
#
# Then change one thing at a time, and keep a run of twenty steps with fixed seeds to compare losses with. Look first at the loader (run the
# loop on one fixed batch: is it faster?), then at syncs
# ([`torch.cuda.set_sync_debug_mode("warn")`](https://docs.pytorch.org/docs/stable/generated/torch.cuda.set_sync_debug_mode.html)), then at
# launches, then at the kernels.
#
# ## Sources on trial
#
# Two of the sources end with a headline. One takes BERT-base from 12 to 3.2 hours an epoch, and from 22 to 14 GB. The other takes
# a step from 800 to 200 ms and from 12 to 6 GB, by `torch.compile` alone. Neither gives the code that it began with. The capstone's script shows why that matters.

# %% experiment
from helpers.trials import capstone as trials

headlines = trials.headlines(*show.from_and_to(script, *repairs.values()))
lesson.verdicts(headlines, evidence="simulated (H100) · arithmetic")

# %% [markdown]
# "Times as fast" is a property of the plain script as much as of the repairs. A script with more faults has a higher ladder.
#
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | Measure, rank, repair one, measure again. | A fault that breaks the losses is repaired at once. |
# | What a repair can buy is at most what the place costs now. | Behind another limit it buys nothing yet. |
# | First data, then syncs, then launches, then kernels, then memory. | A run that does not fit begins with memory. |
# | Compare losses after every repair, on more than one shape. | Other rounding (bfloat16) moves them a little: say how much. |
# | Count; a clock only confirms. | Work inside one kernel has no counter: there the clock decides. |
#
# **Read on**: PyTorch's [performance tuning guide](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html); its
# [profiler](https://docs.pytorch.org/docs/stable/profiler.html) and [memory
# snapshots](https://docs.pytorch.org/docs/stable/torch_cuda_memory.html); H. He,
# [*Making deep learning go brrrr from first principles*](https://horace.io/brrr_intro.html) (2022);
# [*nanoGPT*](https://github.com/karpathy/nanoGPT), a fast script that is short. Lesson 18 weighs what the sources promise.

# %% experiment
lesson.progress()

# %% [markdown]
# ## Further
#
# ### The run around the step (16 min)
#
# **Exercise 17.4 — the run** (★★, 8 min)
#
# Logging, validation and checkpoints are not the training, and they should cost next to nothing. Repair `count_right`, `log`, `remember`,
# `held_out`, `validate`, `to_host` and `save`: those of them that need it. Graded counters: syncs, memory left behind, bytes copied, bytes saved.
#
# <details><summary>Hint 1</summary>Who needs these numbers, and when? A value that nobody reads before the fourth step may stay on the GPU until then.</details>
# <details><summary>Hint 2</summary>What does the record hold on to: a number, a tensor, a tensor with its graph? What of the validation needs gradients? And
# what does not change between two validations?</details>
# <details><summary>The idea</summary><code>log</code> stacks three tensors, and reads every <code>LOG_EVERY</code> steps at once; <code>remember</code> keeps classes
# as uint8; pictures that are held out go to the GPU once; <code>no_grad</code>; all weights flat, in one copy to pinned memory, every
# <code>SAVE_EVERY</code> steps.</details>


# %% exercise="repair_run"
def repair_run(script: Script) -> Script:
    """The script with other functions for some of the run's parts; train.py says what each takes and returns.

    count_right(logits, labels), log(record, loss, right, length), remember(record, logits), held_out(files, size, gpu),
    validate(model, batches, gpu), to_host(module), save(record, step, model, averaged).

    What a run writes down stays the same: see Record in train.py. (A guess may be kept in another dtype. Rows may wait
    in record.waiting until LOG_EVERY of them are there.)

    Returns script.replace(...). Budget, a point each: syncs, memory left behind, bytes copied, bytes saved.
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
from helpers.exercises.capstone import check_repair_run, run

check_repair_run("syncs", run(), run(steps=6, files=120))

# %% hidden="repair_run" points=1
### BEGIN HIDDEN TESTS
from helpers.exercises.capstone import check_repair_run, run

check_repair_run("growth_bytes", run(seed=9, steps=13), run(batch=20, files=150, parts=4))
### END HIDDEN TESTS

# %% hidden="repair_run" points=1
### BEGIN HIDDEN TESTS
from helpers.exercises.capstone import check_repair_run, run

check_repair_run("copied_bytes", run(seed=9, steps=13), run(batch=20, files=150, parts=4))
### END HIDDEN TESTS

# %% hidden="repair_run" points=1
### BEGIN HIDDEN TESTS
from helpers.exercises.capstone import check_repair_run, run

check_repair_run("saved_bytes", run(seed=9, steps=13), run(batch=20, files=150, parts=4))
### END HIDDEN TESTS

# %% experiment
show.tried(script, repair_run)

# %% [markdown]
# ### All of it (4 min)
#
# **Exercise 17.5 — the whole** (★, 2 min)
#
# Put your repairs together. The budget is now that of the whole script.
#
# <details><summary>Hint 1</summary>Each of your functions takes a script and returns one.</details>
# <details><summary>Hint 2</summary>If one of them is not written yet, leave it out: the counters are graded one by one.</details>
# <details><summary>The idea</summary><code>repair_run(repair_step(repair_model(repair_data(script))))</code></details>


# %% exercise="repair"
def repair(script: Script) -> Script:
    """The script with all your repairs. The training stays the same.

    Budget, a point each: time of a step on the simulated H100, peak memory, launches, syncs.
    """
    ### BEGIN SOLUTION
    return repair_run(repair_step(repair_model(repair_data(script))))
    ### END SOLUTION


# %% test="repair" points=1
from helpers.exercises.capstone import check_repair, run

check_repair("step_s", run(), run(autocast=True))

# %% hidden="repair" points=1
### BEGIN HIDDEN TESTS
from helpers.exercises.capstone import check_repair, run

check_repair("peak_bytes", run(seed=11, side=24, width=48, batch=16, parts=4, steps=13))
### END HIDDEN TESTS

# %% hidden="repair" points=1
### BEGIN HIDDEN TESTS
from helpers.exercises.capstone import check_repair, run

check_repair("launches", run(seed=11, side=24, width=48, batch=16, parts=4, steps=13))
### END HIDDEN TESTS

# %% hidden="repair" points=1
### BEGIN HIDDEN TESTS
from helpers.exercises.capstone import check_repair, run

check_repair("syncs", run(seed=11, side=24, width=48, batch=16, parts=4, steps=13))
### END HIDDEN TESTS

# %% experiment
show.tried(script, repair_data, repair_model, repair_step, repair_run)

# %% [markdown]
# ### On several GPUs, killed and gone on with (12 min)
#
# A run of a week is killed before it ends: by a fault, by the scheduler, by a power cut. It should lose minutes and not days. The next cell trains
# the capstone's fast version on two real processes, in three ways: data parallel (DDP, lesson 14), fully sharded (FSDP2, lesson 15), and through
# [Accelerate](https://huggingface.co/docs/accelerate/index) where it is installed. Rank 0 is killed with SIGKILL in step 6. Every four steps all ranks
# had written a checkpoint together, with
# [`torch.distributed.checkpoint`](https://docs.pytorch.org/docs/stable/distributed.checkpoint.html). Then the run is started again, from the newest
# checkpoint that is whole.
#
# **Are the losses those of a run that nobody killed? And can two fully sharded ranks go on from what two data-parallel ranks have written?**

# %% experiment
SAME = ["to the last bit", "to rounding", "no"]
you = lesson.predict(
    {"killed, against not killed": ..., "sharded, going on from data parallel": ...}, choices=SAME
)

# %% experiment
found = show.killed()
you.against(show.same_losses(found), show.killed_table(found), evidence="live (CPU)", what="the same losses")

# %% [markdown]
# Three things make this work. What is random in a step follows from the seed and the number of the step, never from what was drawn before. The
# checkpoint holds all that changes: weights, the optimizer's means, the average of the weights, and the number of the step. And it is whole
# or it is not there: its last file, `.metadata`, is written when all ranks are done.
#
# Names in the checkpoint are those of the model, without the wrapper around it. So one way can go on from another, also on
# another number of ranks. The sums are then taken in another order, and agree to rounding.
#
# The same file runs under torchrun, here with gloo and on GPUs with NCCL:
#
# ```bash
# export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
# torchrun --standalone --nproc-per-node 2 --max-restarts 3 -m helpers.capstone.spread --by sharded --to run
# ```
#
# With `--max-restarts` torchrun starts all ranks again when one of them dies. The first line is needed here with torch 2.13: without it the new ranks
# find addresses of the dead ones, and give up ([a known issue](https://github.com/pytorch/pytorch/issues/135712)).
