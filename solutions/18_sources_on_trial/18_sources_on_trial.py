# %% [markdown]
# # 18 · Sources on trial
#
# ## What of all this is true?
#
# The other lessons put claims to the test, a few in each. Here they come together. Answers age. So the second half is
# about the method: how you try a claim yourself.
#
# **Time** 60 min, 22 of them for two exercises; *Further*: 29 min, with one more. **Before this** lessons 00 and 02:
# pairs and intervals, counters.
#
# **Afterwards you can**
# - say what a claim leaves out, and what would have to be measured;
# - design a trial with a control, a counter and more than one size;
# - tell "refuted" from "cannot tell", and from a trial that shows nothing.

# %% setup
import math
from collections.abc import Callable

import numpy as np
import torch

from helpers import count, lesson, running_example
from helpers.lessons.sources_on_trial import experiments


def interval(before, after):
    """Ratio before ÷ after of n ≥ 6 paired numbers, and the two ends of its 95 % interval."""
    d = np.log(np.divide(before, after))
    errors = experiments.student(len(d))  # 2.57 standard errors for 6 pairs, 2.36 for 8, 2.02 for 40
    reach = errors * d.std(ddof=1) / math.sqrt(len(d))
    return tuple(round(math.exp(x), 9) for x in (d.mean(), d.mean() - reach, d.mean() + reach))


torch.set_num_threads(1)
lesson.start(
    "18_sources_on_trial",
    evidence=["live (CPU)", "simulated (H100)", "simulated (noisy machine)", "published", "arithmetic"],
)

# %% [markdown]
# ## 1 · Six claims
#
# A verdict begins with one of four words:
#
# - **confirmed**: it was so in every case that was tried, and these are cases that the sentence speaks of (if it says "may" or
#   "sometimes", one such case is enough);
# - **partly**: it was so in some of them and not in others, or for one part of the sentence; the verdict names the
#   condition or the part;
# - **refuted**: it was so in none;
# - **untested**: nothing was run or cited here that could decide it; the verdict says what a trial would take.
#
# Six claims are tried here, some in a lesson too. Two are from an article on five strategies, one from the notes
# on a book, and three from PyTorch's
# [Performance Tuning Guide](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html). The course's PyTorch is
# newer than all of these texts. What will the verdicts say?

# %% experiment
claim_of = {
    "`num_workers` loads data with many threads": "18-five-strategies-threads",
    "accumulated gradients have the effect of a large batch": "18-five-strategies-large-batch",
    "DDP's buckets cost memory": "18-book-notes-buckets-take-memory",
    "`torch.compile` can make one kernel of pointwise operations": "18-tuning-guide-gelu-in-one",
    "a convolution before a batch norm needs no bias": "18-tuning-guide-bias-before-norm",
    "`zero_grad()` writes zeros, and `.grad = None` is less work": "18-tuning-guide-grad-is-none",
}
you = lesson.predict(dict.fromkeys(claim_of, ...), choices=["confirmed", "partly", "refuted"])

# %% experiment
claims = experiments.all_claims()  # those of the lessons, and trials that run now: about ten seconds
words, measured = experiments.words_of(claims, claim_of)
you.against(words, measured, evidence="live (CPU)", what="verdict")

# %% [markdown]
# Three ways of being wrong are in this list. The first claim has the wrong **thing**:
# [`DataLoader`](https://docs.pytorch.org/docs/stable/data.html) starts processes. The claim about buckets leaves out a
# **condition**. So does the one about accumulated gradients. (Its source names BatchNorm further down; its remedy leaves
# the gradients different, see lesson 09.) And the last claim has **aged**: `None` still is less work than zeros. But
# [`zero_grad()`](https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html) has set `None` by
# itself since PyTorch 2.0. None of this shows in the text: they all sound like the claims that hold.

# %% [markdown]
# ## 2 · The table
#
# Here are the sources: texts on fast PyTorch, a book's code, PyTorch's tuning guide, posts, papers and manuals. `key` is
# the short name of a source. Four texts came to us without an address, three of them with no author above the text. (The
# link of `book-notes` is that of the book.)

# %% experiment
claims

# %% [markdown]
# They make {{claims}} claims. {{untested}} of these are untested: most name no model, or take a GPU, trained weights or
# data that are not here. The other {{tested}} were tried, {{cited}} of them by what others published. What part is confirmed,
# and what part refuted? Which source has the most refuted ones?

# %% experiment
parts = ["under 5 %", "5 to 15 %", "15 to 30 %", "30 to 50 %", "over 50 %"]
you = lesson.predict(
    {"confirmed": ..., "refuted": ..., "most refuted": ...},
    choices={
        "confirmed": parts,
        "refuted": parts,
        "most refuted": ["book-notes", "compile-300", "five-strategies", "guide"],
    },
)

# %% experiment
counted = {word: claims.part(word) for word in ("confirmed", "refuted")}
lesson.keep(claims=len(claims.rows), untested=claims.total["untested"], tested=claims.tested)
in_ten = claims.of_ten
lesson.keep(partly=in_ten("partly"), confirmed=in_ten("confirmed"), refuted=in_ten("refuted"))
lesson.keep(all_partly=claims.total["partly"], when=claims.conditions[0], other=claims.conditions[1])
lesson.keep(all_confirmed=claims.total["confirmed"], remarked=claims.remarked, cited=claims.cited)
you.against(counted | {"most refuted": claims.most("refuted")}, claims.picture(), evidence="arithmetic")

# %% [markdown]
# Of ten claims, about {{confirmed}} are confirmed, {{partly}} hold in part, and {{refuted}} not at all. {{remarked}} of the
# {{all_confirmed}} confirmed ones carry a remark. Of the {{all_partly}} verdicts "partly", {{when}} say "holds when …", and
# {{other}} "holds for …" or the like. The others name a condition or a part in other words. One counter-case is enough for
# "partly", and we chose the cases: these shares are ours, too.
#
# So ask "**when?**" before you ask "is it true?". Three kinds of condition come often: a **size** (does it fit? are the
# kernels small?), a **place** (one machine or several) and a **setting** of PyTorch.

# %% experiment
claims.find(verdict="partly", text="holds when", most=4)

# %% [markdown]
# `find` also takes `source=` (its key) and `lesson="05"`. Say `claims.find(text="pin_memory")`. The
# last column says which lesson tried a claim, and where; a name in code is a function below `helpers/lessons/`. The whole
# table is `docs/claims.md` of the course's repository, and a page of its site. It quotes each sentence, some of them
# shortened.

# %% [markdown]
# ## 3 · A trial in five parts
#
# Say that a post claims: *"`foreach=True` halves the operators of an AdamW step."* In place of
# `AdamW(weights, foreach=False)` it writes `AdamW(weights, foreach=True, weight_decay=0)`. A trial has five parts.
#
# 1. The **claim**, so that it can fail: *what* falls, *by how much*, *where*. Here: operators, to half or less, whatever
#    the number of parameters.
# 2. **Before and after**. Both are warm: the first step of
#    [AdamW](https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html) makes its state, and does not count.
# 3. A **control**: the same rewriting without the claimed change, here `foreach=False, weight_decay=0`. What the control
#    wins is not the merit of `foreach`.
# 4. A **counter** for what the claim names. A clock reads everything else too.
# 5. **Several sizes**, small and large, since the condition hides there.

# %% experiment
SIZES = (1, 3, 8, 32)  # parameters of the model


def operators(n, **options):
    """Operators of a warm AdamW step over n parameters."""
    weights = [torch.ones(4, requires_grad=True) for _ in range(n)]
    for w in weights:
        w.grad = torch.ones(4)
    optimizer = torch.optim.AdamW(weights, **options)
    optimizer.step()  # makes the state
    return count(optimizer.step).operators


def trial_of_foreach(sizes):
    """size → operators before, with the control, after."""
    return {
        n: (
            operators(n, foreach=False),
            operators(n, foreach=False, weight_decay=0),
            operators(n, foreach=True, weight_decay=0),
        )
        for n in sizes
    }


# %% [markdown]
# What would each of these designs say? Where there is a control, the count *after* is compared with the control's.

# %% experiment
you = lesson.predict(
    {"one size, 32": ..., "one size, 3": ..., "3, no control": ..., "all sizes": ...},
    choices=["confirmed", "partly", "refuted"],
)

# %% experiment
designs = {"one size, 32": trial_of_foreach([32]), "one size, 3": trial_of_foreach([3])}
designs["3, no control"] = experiments.without_control(designs["one size, 3"])
designs["all sizes"] = trial_of_foreach(SIZES)
fails, holds = experiments.border(designs["all sizes"])
lesson.keep(fails=fails, holds=holds, most=SIZES[-1])
before, control, after = designs["one size, 3"][3]
lesson.keep(before=before, control=control, after=after)
you.against(
    {name: experiments.word(trial) for name, trial in designs.items()},
    experiments.counts_table(designs),
    evidence="live (CPU)",
    what="says",
)

# %% [markdown]
# One change, and all three verdicts. Only the trial over all sizes finds the condition. `foreach` has a price of its own,
# whatever the number of parameters: with 1 and {{fails}} it does not halve the operators, with {{holds}} and {{most}} it
# does.
#
# With 3 parameters the control decides. {{after}} of {{before}} operators are left, less than half. But the control has {{control}}
# already, thanks to `weight_decay=0`, and {{after}} is more than half of that.
#
# **Exercise 18.1 — put a claim on trial** (★★, 12 min)
#
# The claim is *"the change halves the operators"*. Write the trial. It is run in worlds where the claim holds, where it
# does not, where it holds for some sizes only, and where the rewriting does it and not the change.
#
# <details><summary>Hint 1</summary>For each size: call <code>nothing</code> and <code>after</code> once, uncounted. Then
# count both: <code>count(after, n).operators</code>.</details>
# <details><summary>Hint 2</summary>Which two numbers does the claim compare, if the rewriting itself may win or lose
# something? Keep the sizes at which it holds in a list.</details>
# <details><summary>The idea</summary>It holds at n if <code>count(after, n).operators &lt;= count(nothing, n).operators
# / 2</code>. All sizes hold: "confirmed"; none: "refuted"; else "partly".</details>


# %% exercise="trial"
def trial(
    before: Callable[[int], None],
    after: Callable[[int], None],
    nothing: Callable[[int], None],
    sizes: list[int],
) -> tuple[str, list[int]]:
    """The verdict on "the change halves the operators of a step", and the sizes at which it holds.

    before(n), after(n): one step on n rows, without and with the change. nothing(n): the control, rewritten in the
        same way as after, without the change. What the rewriting wins or loses is not the change's.
    You need not call all three.
    sizes: the numbers of rows that the claim is about, one or more; run no others.

    It holds at n if the change leaves half of the operators or less. The first call at a size may set something up,
    in any of the three; this does not count. Counts do not scatter, times do.

    Returns ("confirmed", sizes) where it holds at all of them, ("refuted", []) at none, else
    ("partly", those at which it holds).
    """
    ### BEGIN SOLUTION
    holds = []
    for n in sizes:
        nothing(n)
        after(n)
        if count(after, n).operators <= count(nothing, n).operators / 2:
            holds.append(n)
    return "confirmed" if len(holds) == len(sizes) else "partly" if holds else "refuted", holds
    ### END SOLUTION


# %% test="trial" points=2
from helpers.lessons.sources_on_trial.exercises import World, check_trial

check_trial(
    World("it halves them everywhere"),
    World("it saves a quarter"),
    World("it has a cost of its own, so it helps with many rows"),
    World("the rewriting halves them, not the change"),
    World("it changes nothing", setup=5),
    World("it changes nothing", sleeps="before"),
)

# %% hidden="trial" points=2
### BEGIN HIDDEN TESTS
from helpers.lessons.sources_on_trial.exercises import World, check_trial

check_trial(
    World("it helps with few rows, then falls back", sizes=(32, 8, 24, 2)),
    World("it helps where rows are a multiple of 8", sizes=(8, 12, 24)),
    World("exactly half is enough", sizes=(3, 7), setup=4, pays="after"),
    World("it changes nothing", sizes=(2,), setup=6, pays="nothing", sleeps="before"),
    World("it makes more of them", sizes=(5, 20)),
    World("it has a cost of its own, so it helps with many rows", sizes=(2, 5), setup=3),
)
### END HIDDEN TESTS

# %% hidden="trial" points=2
### BEGIN HIDDEN TESTS
from helpers.lessons.sources_on_trial.exercises import World, check_trial

check_trial(
    World("the rewriting halves them, not the change", sizes=(6, 11), setup=3),
    World("rewriting and change halve them, one after the other", sizes=(4, 9)),
    World("the rewriting doubles them, and the change halves that", sizes=(4, 9)),
    World("it misses half by one", sizes=(4, 9)),
    World("it halves them everywhere", sizes=(5, 12), sleeps="after"),
    World("it saves a quarter", sizes=(8, 16), sleeps="nothing"),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · Three fresh claims
#
# Sometimes the counter is a clock after all, and numbers scatter. Then the interval speaks, as in lesson 00. But two
# standard errors make 95 % for many pairs only. For few, our `interval` reaches further (Student's t).
#
# Three posts make a claim each, and somebody has measured them in pairs. (The posts do not exist. The numbers are drawn at
# random with a ratio that we chose.) Look at the controls first. If the interval of one leaves out 1, the trial is
# **confounded**: something else is at work, and the numbers cannot tell one from the other.
#
# Only then: where does the interval of the change lie? If all of it lies at the promise or above, the claim holds under this
# condition. If all of it lies below, the claim fails there. If the promise is inside, the condition is open.
#
# - **confirmed**: it holds under all conditions. **refuted**: it fails under all.
# - **partly**: it holds under at least one and fails under at least one, whatever the others say.
# - Else **cannot tell**. One failure beside an open condition may become "partly" or "refuted".
#
# In the picture each condition has a row, and its control one below it.

# %% experiment
experiments.fresh_picture(interval)

# %% experiment
you = lesson.predict(
    {"claim A": ..., "claim B": ..., "claim C": ...},
    choices=["confirmed", "partly", "refuted", "cannot tell", "confounded"],
)

# %% experiment
ours = {"claim A": "partly", "claim B": "confounded", "claim C": "cannot tell"}  # read off the picture
you.against(ours, evidence="simulated (noisy machine)", what="we say")

# %% [markdown]
# Claim A holds where the batch is small, and fails where it is large. Claim B looks best of all. But with 48 layers the
# control wins too, and how much of the gain is the change's, nobody knows. Claim C's promise lies inside. Eight noisy
# pairs neither refute nor confirm it. Four times as many would about halve the interval.
#
# Two traps. **Fix n before you look**: who takes more pairs until an interval suits, finds what is not there. And
# honest **controls raise false alarms**, each in 5 of 100 trials. Of ten controls, one or more do so in 1 − 0.95¹⁰, 40 of
# 100 trials. So measure such a control anew, with new pairs, before you say "confounded".
#
# **Exercise 18.2 — design the trial** (★★, 10 min)
#
# You are given a claim, and `run`, which measures as many pairs as you ask for. Decide what is run, and how often. Then give
# the verdict by the rules above, with `interval` from the set-up. You have 80 pairs for each condition, controls included.
# For one claim they are not enough.
#
# <details><summary>Hint 1</summary>What has to be measured under each condition before its numbers mean anything?</details>
# <details><summary>Hint 2</summary>A control of a few pairs finds nothing, even if there is something. Share the pairs out
# evenly.</details>
# <details><summary>The idea</summary><code>n = most // (2 * len(conditions))</code> pairs of the control and of the change under each
# condition. A control whose interval leaves out 1: confounded. Else each condition holds (lower end at the promise or above), fails
# (upper end below) or is open.</details>

# %% exercise="judge"
Pairs = tuple[list[float], list[float]]


def judge(promised: float, conditions: list[str], run: Callable[[str, str, int], Pairs], most: int) -> str:
    """Try the claim that before ÷ after ≥ promised, under each of the conditions, and say what came out.

    run("change", condition, n): (before, after) of n ≥ 6 pairs. run("nothing", condition, n): the same for the control.
        Pairs scatter, and the mean of a run is exact: neither trap above is set here.
    most: pairs that you may run in all.

    Returns "confounded" if under any condition the control's interval leaves out 1; else "confirmed" if it holds under
    all, "refuted" if it fails under all, "partly" if it holds under one or more and fails under one or more; else
    "cannot tell".
    """
    ### BEGIN SOLUTION
    n, words = most // (2 * len(conditions)), set[str]()
    for condition in conditions:
        _, low, high = interval(*run("nothing", condition, n))
        if not low <= 1 <= high:
            return "confounded"
        _, low, high = interval(*run("change", condition, n))
        words.add("holds" if low >= promised else "fails" if high < promised else "open")
    if words == {"holds"}:
        return "confirmed"
    if words == {"fails"}:
        return "refuted"
    return "partly" if {"holds", "fails"} <= words else "cannot tell"
    ### END SOLUTION


# %% test="judge" points=1
from helpers.lessons.sources_on_trial.exercises import Claim, check_judge

check_judge(
    Claim("holds twice", 1.3, {"small": (1.5, 1.0), "large": (1.4, 1.0)}),
    Claim("holds where it is small", 1.3, {"small": (1.5, 1.0), "large": (1.1, 1.0)}),
    Claim("less than promised", 2.0, {"small": (1.5, 1.0), "large": (1.4, 1.0)}),
    Claim("the rewriting wins", 1.3, {"small": (1.5, 1.0), "large": (2.4, 1.5)}),
    Claim("a close one, and noisy", 1.2, {"GPT": (1.25, 1.0)}, scatter=0.1),
    Claim("far too noisy", 1.2, {"GPT": (1.22, 1.0)}, scatter=0.3),
)

# %% hidden="judge" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.sources_on_trial.exercises import Claim, check_judge

check_judge(
    Claim("a counter, the promise met exactly", 2.0, {"8": (2.0, 1.0), "64": (4.0, 1.0)}, scatter=0.0),
    Claim("a counter, promised more", 4.0, {"8": (2.0, 1.0), "64": (4.0, 1.0)}, scatter=0.0),
    Claim(
        "one holds, one fails, one is open", 1.2, {"a": (1.5, 1.0), "b": (1.05, 1.0), "c": (1.2, 1.0)}, 0.1
    ),
    Claim("one holds, one is open", 1.2, {"a": (1.5, 1.0), "c": (1.2, 1.0)}, scatter=0.1),
    Claim("one fails, one is open", 1.2, {"b": (1.02, 1.0), "c": (1.2, 1.0)}, scatter=0.1),
    Claim("it became slower", 1.1, {"a": (0.8, 1.0), "b": (0.9, 1.0)}),
    Claim("the control loses", 2.0, {"8": (2.4, 1.0), "64": (2.6, 0.9)}),
    Claim("controls that cancel out", 1.3, {"a": (1.5, 1.25), "b": (1.5, 0.8), "c": (1.5, 1.0)}),
    Claim("the control wins a little, in noise", 1.2, {"a": (1.5, 1.0), "b": (1.5, 1.05)}, scatter=0.1),
    Claim(
        "four conditions, the last one fails", 1.2, {k: (1.3 if k < "d" else 1.15, 1.0) for k in "abcd"}, 0.1
    ),
    Claim("a close failure, and noisy", 1.25, {"a": (1.2, 1.0), "b": (1.2, 1.0)}, scatter=0.1),
)
### END HIDDEN TESTS

# %% [markdown]
# ## The running example
#
# One source's headline: steps 4 times as fast, at half the memory. It does not say with which code and which batch, so
# nobody can run it again. Here is the claim *"everything together, at least 4 times as fast at half the memory"*, on our
# script of lesson 10, with lesson 09's checkpoints put back.

# %% experiment
plain, graph, checkpoints, last = (running_example.after(rung) for rung in ("00", "07", "09", "10"))
best = last.replace(through=checkpoints.through)
graphed = best.replace(optimizer=graph.optimizer, around=graph.around)
running_example.compare(plain, best)

# %% experiment tags=["fold"]
everything, without, replayed = (experiments.against(plain, script) for script in (best, last, graphed))
error, shortest_s = experiments.off()
lesson.keep(best_times=everything.times, best_memory=everything.memory, off=error, shortest=shortest_s * 1e3)
lesson.keep(last_times=without.times, last_memory=without.memory)
lesson.keep(graph_times=replayed.times, graph_memory=replayed.memory)
lesson.keep(least=everything.times * (1 - error) / (1 + error))
lesson.keep(bf16=experiments.against(running_example.after("08"), last).times)

# %% [markdown]
# As simulated, this is {{best_times:.1f}} times as fast at {{best_memory:.0%}} of the memory. But **which** changes are
# "everything"? Without the checkpoints it is {{last_times:.1f}} times, at {{last_memory:.0%}}. With lesson 07's CUDA graph too
# it is {{graph_times:.1f}} times, at {{graph_memory:.0%}}.
#
# How sure is the time? The H100's simulated steps are off by up to {{off:.1%}}; they were in fp32, of {{shortest:.0f}} ms and
# more. (The line below the table speaks of all cards.) If the first script's is too high by that, and the other's too low,
# the true ratio is {{best_times:.2f}} × (1 − {{off:.3f}}) ÷ (1 + {{off:.3f}}) = {{least:.1f}}. So by section 4's rule the time is
# open.
#
# Our script was slow on purpose. That is the condition which every headline leaves out: **the script it began with**. The
# table's last row shows a second one, **the machine**, and a smaller size with it: both scripts on this CPU, live, at a
# quarter of the width and of the text. Of the simulated gain bf16 alone is a factor of {{bf16:.1f}}. On a CPU without
# instructions for bf16 it may be slower (lesson 10).
#
# ## Your own script
#
# Try a claim on your own model. The one below is that a fused optimizer makes a step faster. One option is all that
# changes, so the control is the same step.

# %% experiment tags=["nbval-ignore-output"]
from helpers import compare, count
from helpers.own_script import toy

model, optimizer, loss_fn, loader, device, _ = toy()  # at home: your own

x, y = (part.to(device) for part in next(iter(loader)))


def step_with(**options):
    mine = torch.optim.AdamW(model.parameters(), lr=1e-3, **options)
    return lambda: (loss_fn(model(x), y).backward(), mine.step(), mine.zero_grad())


before, control, after = step_with(), step_with(), step_with(fused=True)
for name, changed in (("control", control), ("claim", after)):
    print(name, compare(before, changed, pairs=20))  # a ratio, its interval and a verdict
    print(count(before).operators, "→", count(changed).operators, "operators")

# %% [markdown]
# Look first at the control. Its interval must contain 1, *and* be narrower than the gain that you look for. If not, take
# more pairs for both. Then the claim: does its interval lie above 1? And does the counter say why? Here, on a CPU, one
# operator takes the place of a loop over the parameters. On a GPU the default is `foreach` already, so there is less to
# win. Change the batch and the width, and do it again: a claim that holds at one size is a claim about this size.

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | Ask "when?", not "is it true?". | The API does not exist, or does the opposite: then it is simply wrong. |
# | Say what falls, by how much, where, before you measure. | You are exploring: then what you find is a new claim, and needs new runs. |
# | Change one thing, with a control that must do nothing. | Two changes that only work together. |
# | Count what the claim names. | The claim is about time: pairs and an interval (lesson 00). |
# | Several sizes: the condition hides there. | You have one size, for ever: then try that one well. |
# | "Cannot tell" is a verdict. | It costs little to measure four times as often. |
# | A text ages: ask for which version it was written. | You run that version. |
#
# **Read on**: T. Mytkowicz and others, [*Producing wrong data without doing anything obviously
# wrong!*](https://doi.org/10.1145/1508244.1508275) (2009); T. Hoefler and R. Belli, [*Scientific benchmarking of parallel
# computing systems*](https://doi.org/10.1145/2807591.2807644) (2015).
#
# Lessons 19 to 21, on today's models, may come any time after 11.

# %% experiment
lesson.progress()

# %% [markdown]
# ## Further
#
# Each section stands alone. The second one looks into the table of section 2.
#
# ### From which size on? (14 min)
#
# "Partly" asks for the border. In the trial of `foreach` the claim failed with {{fails}} parameters and held with {{holds}}.
# The border lies between them, or is {{holds}}. To try every size would be slow. If a claim that holds at a size holds at all
# larger ones, then each size that you try halves what is left: try the middle, and go on in the half where the border must
# be.
#
# **Exercise 18.3 — the border of a claim** (★★, 12 min)
#
# Find the smallest size from which the change halves the operators, with few trials. Nothing else is rewritten here, so
# `before` is the control.
#
# <details><summary>Hint 1</summary>Try the largest size first. If it does not hold there, it holds
# nowhere.</details>
# <details><summary>Hint 2</summary>Keep two sizes: one at which it holds, and everything below another one at which it
# does not. Stop when nothing lies between.</details>
# <details><summary>The idea</summary>While <code>low &lt; high</code>: <code>middle = (low + high) // 2</code>. If it
# holds there, <code>high = middle</code>, else <code>low = middle + 1</code>. A first call at each size does not
# count.</details>


# %% exercise="border"
def border(before: Callable[[int], None], after: Callable[[int], None], low: int, high: int) -> int | None:
    """The smallest n from low to high at which after(n) takes at most half the operators of before(n); None: at no n.

    before(n), after(n): one step on n rows; n outside low … high raises. If it holds at n, it holds at all larger
        ones. The first call at a size may set something up, which does not count. 1 ≤ low ≤ high.

    Budget: at most 2 + ⌈log2(high - low + 1)⌉ different sizes.
    """
    ### BEGIN SOLUTION

    def holds(n):
        before(n)
        after(n)
        return count(after, n).operators <= count(before, n).operators / 2

    if not holds(high):
        return None
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return high
    ### END SOLUTION


# %% test="border" points=1
from helpers.lessons.sources_on_trial.exercises import Border, check_border

check_border(Border(at=23), Border(at=1), Border(at=64), Border(at=0), Border(at=40, setup=5))

# %% hidden="border" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.sources_on_trial.exercises import Border, check_border

check_border(
    Border(at=7, low=7, high=7),
    Border(at=8, low=3, high=7),
    Border(at=2, low=5, high=40, setup=3),
    Border(at=500, low=100, high=1000, setup=4, pays="before"),
    Border(at=1000, low=100, high=1000),
    Border(at=101, low=100, high=1000),
)
### END HIDDEN TESTS

# %% [markdown]
# ### What they want you to type (7 min)
#
# Some claims are code: the source prints a line, and mostly says what it is for. Such a line is run **as it is
# written**. Here are three. What does each one do?
#
# - `set_per_process_memory_fraction(0.8)`, to allocate memory in advance. How much does
#   [it](https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.set_per_process_memory_fraction.html) reserve?
# - `x.view(-1, 16 * 16 * 16)`, to give each picture one row of numbers before the last layer. A picture of 32 × 32 has 16 ×
#   16 × 16 numbers at this point. How many rows does *one* picture of 64 × 64 become?
# - `if (i+1) % accumulation_steps == 0: optimizer.step()`, to make one step of four micro-batches. An epoch has ten of them.
#   What becomes of the last two in this epoch?

# %% experiment
you = lesson.predict(
    {"the fraction reserves": ..., "the large picture becomes": ..., "the last two micro-batches": ...},
    choices={
        "the fraction reserves": ["80 % of the card", "what is used most", "nothing"],
        "the large picture becomes": ["an error", "one row", "four rows"],
        "the last two micro-batches": ["make a step of their own", "join the second step", "wait in .grad"],
    },
)

# %% experiment
typed = dict(
    zip(you, ("08-fraction", "18-compile-300-flattening", "18-five-strategies-end-of-an-epoch"), strict=True)
)
_, table = experiments.words_of(claims, typed)
fraction, picture, last_two = (claims.verdict_of(name).measured for name in typed.values())
answers = [
    "nothing" if "after 0 MiB" in fraction else "80 % of the card",
    "four rows" if "64×64: (4, 10)" in picture else "an error",
    "wait in .grad" if "2 micro-batches left over" in last_two else "make a step of their own",
]
you.against(dict(zip(you, answers, strict=True)), table, evidence="live (CPU) · simulated (H100)")

# %% [markdown]
# None of the three lines raises an error by itself. An error would have said where to look. Code that runs and does
# something else says nothing.
#
# - **The fraction** is a limit, and reserves nothing. To reserve memory in advance, make a tensor of that size and drop it:
#   PyTorch's pool keeps its block (lesson 08).
# - **The picture**: `view(-1, n)` takes as many rows as it needs to get n columns. In training the loss notices: four rows,
#   one label. In inference nothing does. `flatten(1)` makes one row of each picture, whatever its size. Then the last layer
#   does not fit, and raises an error: that is what you want.
# - **The last two** wait in `.grad`, without a step. The listing begins with `zero_grad()`, before its loop. If the next
#   epoch runs this line again, they are dropped. If it runs the loop only, its first step adds four micro-batches to them.

# %% experiment
pooled = torch.rand(1, 16, 32, 32)  # a picture of 64 × 64, behind a convolution and a pooling
print("view(-1, 16 * 16 * 16):", *pooled.view(-1, 16 * 16 * 16).shape)
print("flatten(1):            ", *pooled.flatten(1).shape)

# %% [markdown]
# ### A source of your own (8 min)
#
# The table grows by one file a source: its claims in its order, and a function for each claim that you can try. Title and
# author go into a list. The tuning guide came into the course in this way. Its file is short enough to be read at one go.
# Which of its claims would you try next?

# %% experiment tags=["fold"]
import inspect

from helpers.lessons.sources_on_trial.sources import tuning_guide

print(inspect.getsource(tuning_guide.grad_is_none))
for claim in tuning_guide.CLAIMS:
    print(f"{claim.section}: {claim.words}")

# %% [markdown]
# `docs/adding-a-source.md` of the course's repository, a page of its site too, says how, in half a page.
